"""What stands for a pipeline on Databricks refuses what its documentation says is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.databricks_pipelines import OLDER, Platform, Refused


def platform() -> Any:
    made: Any = Platform()
    made.create_streaming_table("s.t")
    made.temporary_view(name="v")(lambda: None)
    made.append_flow(target="s.t", name="f")(lambda: None)
    return made


SNAPSHOTS: dict[str, Any] = {"target": "s.t", "source": "v", "keys": ["id"], "stored_as_scd_type": 1}
CDC = {"target": "s.t", "source": "v", "keys": ["id"], "sequence_by": "at"}


@pytest.mark.parametrize(
    ("ask", "why"),
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
def test_what_the_documentation_refuses_is_refused(ask: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        ask(platform())


@pytest.mark.parametrize("once", [True, False])
def test_a_flow_that_runs_once_returns_a_batch_and_any_other_one_a_stream(once: bool, tmp_path: Path) -> None:
    dp: Any = Platform()
    dp.create_streaming_table("s.t")
    dp.append_flow(target="s.t", name="f", once=once)(lambda: SimpleNamespace(isStreaming=once))
    spark: Any = None
    with pytest.raises(Refused, match="f: a flow that runs once returns a batch"):
        dp.update(spark, tmp_path)


def test_its_functions_take_what_their_pages_say_and_nothing_else() -> None:
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
