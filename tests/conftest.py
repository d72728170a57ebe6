"""What all tests share: how hypothesis looks for examples."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples in every run, and no deadline, as a machine's load is no property of the code.
# TABLEFERRY_EXAMPLES=10 looks at ten times as many.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    max_examples=settings().max_examples * int(os.environ.get("TABLEFERRY_EXAMPLES", "1")),
)
settings.load_profile("ci")
