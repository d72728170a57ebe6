"""The estimated duration of a pinned clone."""

from __future__ import annotations

import pytest

from tableferry.pipelines.pinned_clones import CloneEstimate

GB = 10**9


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (CloneEstimate(1200 * GB, 8000, 16), "1.2 TB in 8,000 files, estimated 31 min 15 s on 16 cores"),
        (CloneEstimate(24 * GB, 2, 16), "24.0 GB in 2 files, estimated 5 min 0 s on 16 cores"),
        (
            CloneEstimate(GB, 1, 8, assumed=True),
            "1.0 GB in 1 file, estimated less than a minute on 8 cores (assumed)",
        ),
        (CloneEstimate(0, 0, 1), "0 B in 0 files, estimated less than a minute on 1 core"),
    ],
    ids=["all cores copy", "fewer files than cores", "unknown cores", "empty table"],
)
def test_estimate_of_clone_states_bytes_files_and_duration(estimate: CloneEstimate, text: str) -> None:
    assert str(estimate) == text
