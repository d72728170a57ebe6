"""The fake of a pipeline on Databricks refuses the calls that the documentation forbids."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.databricks_pipelines import OLDER, Platform, Refused


def platform() -> Any:
    dp: Any = Platform()
    dp.create_streaming_table("s.t")
    dp.temporary_view(name="v")(lambda: None)
    dp.append_flow(target="s.t", name="f")(lambda: None)
    return dp


SNAPSHOTS: dict[str, Any] = {"target": "s.t", "source": "v", "keys": ["id"], "stored_as_scd_type": 1}
CDC = {"target": "s.t", "source": "v", "keys": ["id"], "sequence_by": "at"}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda dp: dp.create_streaming_table("s.t"), "s.t is defined twice"),
        (lambda dp: dp.temporary_view(name="s.t")(lambda: None), "s.t is defined twice"),
        (lambda dp: dp.append_flow(target="s.t", name="f")(lambda: None), "f is defined twice"),
        (lambda dp: dp.create_auto_cdc_flow(**CDC, name="f"), "f is defined twice"),
        (lambda dp: dp.append_flow(target="s.other"), "s.other isn't a table of the pipeline"),
        (lambda dp: dp.append_flow(target="s.t", name="g")(lambda rows: rows), "takes no arguments"),
        (lambda dp: dp.create_streaming_table("my-cat.s.t"), "my-cat.s.t: write it in backticks"),
        (lambda dp: dp.temporary_view(name="a b")(lambda: None), "a b: write it in backticks"),
        (lambda dp: dp.create_auto_cdc_flow(**{**CDC, "source": "my-v"}), "my-v: write it in backticks"),
        (
            lambda dp: dp.create_streaming_table("n", partition_cols=["a"], cluster_by=["b"]),
            "partitions and clustering",
        ),
        (
            lambda dp: dp.create_auto_cdc_flow(**CDC, column_list=["a"], except_column_list=["b"]),
            "only one of column_list",
        ),
        (lambda dp: dp.create_auto_cdc_flow(**CDC, stored_as_scd_type=3), "SCD type 3"),
        (
            lambda dp: dp.create_auto_cdc_flow(**CDC, stored_as_scd_type=2, apply_as_truncates="x"),
            "apply_as_truncates",
        ),
        (lambda dp: dp.materialized_view(name="s.t")(lambda: None), "s.t is defined twice"),
        (
            lambda dp: [dp.create_auto_cdc_from_snapshot_flow(**SNAPSHOTS) for _ in range(2)],
            "s.t has another flow of AUTO CDC",
        ),
        (
            lambda dp: dp.create_auto_cdc_from_snapshot_flow(**{**SNAPSHOTS, "source": "my-v"}),
            "my-v: write it in backticks",
        ),
        (
            lambda dp: dp.create_auto_cdc_from_snapshot_flow(
                **SNAPSHOTS, track_history_column_list=["a"], track_history_except_column_list=["b"]
            ),
            "only one of track_history_column_list",
        ),
    ],
)
def test_platform_refuses_undocumented_calls(call: Callable[[Any], Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        call(platform())


@pytest.mark.parametrize("once", [True, False])
def test_platform_refuses_run_once_flow_of_stream_and_other_flow_of_batch(once: bool, tmp_path: Path) -> None:
    dp: Any = Platform()
    dp.create_streaming_table("s.t")
    dp.append_flow(target="s.t", name="f", once=once)(lambda: SimpleNamespace(isStreaming=once))
    spark: Any = None
    with pytest.raises(Refused, match="f: a flow that runs once returns a batch"):
        dp.update(spark, tmp_path)


def test_platform_functions_have_only_documented_parameters() -> None:
    dp, older = platform(), Platform(OLDER)
    assert {"once", "depends_on", "import_checkpoint"} < inspect.signature(dp.append_flow).parameters.keys()
    assert "name" in inspect.signature(dp.create_auto_cdc_flow).parameters
    assert "flow_name" in inspect.signature(older.apply_changes).parameters  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unexpected keyword argument 'tags'"):
        dp.create_streaming_table("x", tags=[])
    with pytest.raises(TypeError, match="positional"):
        dp.append_flow("s.t")
    dp.create_streaming_table("`my-cat`.s.t", row_filter="r")
    assert dp.tables["`my-cat`.s.t"] == {"row_filter": "r"}
