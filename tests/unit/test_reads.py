"""The sources that a view streams, and the tables that it reads whole."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conditions import check, raises

from tableferry.pipelines.model.flows import (
    DeltaSource,
    Join,
    JoinSide,
    JoinSource,
    PythonCode,
    PythonSource,
    ReaderSource,
    Source,
    SqlSource,
    View,
    explicit_start,
)
from tableferry.pipelines.model.reads import (
    Read,
    find_skipping_options,
    list_streamed_reads,
    list_upstream_views,
)
from tableferry.pipelines.sources.python_code import TrackedSpark
from tableferry.spark.tables import TableName

SRC, DIM = TableName.parse("bronze.src"), TableName.parse("bronze.dim")


def views(**sources: Source) -> dict[str, View]:
    return {name: View(name, "stream", source, f"x_main.json: {name}") for name, source in sources.items()}


def tables(reads: tuple[Read, ...]) -> list[str]:
    return [str(read.table) for read in reads]


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({}, None),
        ({"startingVersion": "3000000000"}, 3_000_000_000),
        ({"STARTINGVERSION": "0"}, 0),
        ({"startingVersion": "latest"}, "latest"),
        ({"startingTimestamp": "2026-01-01"}, "timestamp:2026-01-01"),
        ({"maxFilesPerTrigger": "1"}, None),
    ],
)
def test_explicit_start_is_found_in_options_of_any_case(
    options: dict[str, str], start: int | str | None
) -> None:
    assert explicit_start(options) == start


def test_delta_source_is_streamed_by_name_or_path() -> None:
    path = TableName.at("/data/src/")
    reads = views(v_name=DeltaSource(SRC, options={"startingVersion": "4"}), v_path=DeltaSource(path))
    assert list_streamed_reads(reads, "v_name", {}) == (Read("v_name", SRC, "x_main.json: v_name", 4),)
    assert [read.table.key for read in list_streamed_reads(reads, "v_path", {})] == ["/data/src"]


def test_static_join_sides_and_batch_views_are_not_streamed() -> None:
    sides = (JoinSide("s", "stream", DeltaSource(SRC)), JoinSide("d", "static", DeltaSource(DIM)))
    reads = views(v_join=JoinSource(sides, (Join("left", "s.id = d.id"),)))
    assert tables(list_streamed_reads(reads, "v_join", {})) == ["bronze.src"]
    reads["v_batch"] = View("v_batch", "batch", DeltaSource(DIM), "x")
    assert list_streamed_reads(reads, "v_batch", {}) == ()


def test_sql_streams_sources_of_the_views_that_it_streams() -> None:
    reads = views(
        v_src=DeltaSource(SRC),
        v_python=PythonSource(PythonCode("/f.py", None)),
        v_sql=SqlSource(
            "SELECT * FROM STREAM(v_src) s JOIN STREAM(v_python) ON true JOIN bronze.dim d ON true, stream "
            "a.b.c e"
        ),
    )
    python = {"v_python": (Read("v_python", TableName.parse("bronze.seen"), "y"),)}
    assert tables(list_streamed_reads(reads, "v_sql", python)) == ["bronze.src", "bronze.seen", "a.b.c"]
    assert list_upstream_views(reads, "v_sql") == ("v_src", "v_python", "v_sql")


def test_sql_without_stream_and_kafka_source_have_a_finding_instead_of_a_managed_start() -> None:
    reads = views(v_sql=SqlSource("SELECT * FROM bronze.src"), v_kafka=ReaderSource("kafka"))
    (read,) = list_streamed_reads(reads, "v_sql", {})
    assert read.explicit is None
    check(read.unmanaged, "NO_STREAM_IN_SQL")
    (read,) = list_streamed_reads(reads, "v_kafka", {})
    check(read.unmanaged, "SOURCE_NOT_A_TABLE", format="kafka")


def test_name_with_four_parts_is_refused_with_its_location() -> None:
    with raises("NAME_WITH_TOO_MANY_PARTS", location="x_main.json: v_sql", name="a.b.c.d"):
        list_streamed_reads(views(v_sql=SqlSource("SELECT * FROM STREAM(a.b.c.d)")), "v_sql", {})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, frozenset()),
        ({"skipChangeCommits": "true"}, {"skipchangecommits"}),
        ({"SKIPCHANGECOMMITS": "True", "maxFilesPerTrigger": "1"}, {"skipchangecommits"}),
        ({"skipChangeCommits": "false", "ignoreDeletes": "TRUE"}, {"ignoredeletes"}),
        ({"ignoreChanges": "true", "ignoreDeletes": "no"}, {"ignorechanges"}),
        ({"ignoreFileDeletion": "true"}, {"ignorefiledeletion"}),
    ],
)
def test_skipping_option_counts_only_if_its_value_is_true(
    options: dict[str, str], expected: frozenset[str]
) -> None:
    assert find_skipping_options(DeltaSource(SRC, options=options)) == expected


@pytest.mark.parametrize(
    ("options", "stops_at"),
    [
        ({"skipChangeCommits": "false"}, "changes"),
        ({"ignoreDeletes": "true"}, "changes except deletes"),
        ({"ignoreFileDeletion": "true"}, "nothing"),
        ({"ignoreChanges": "true", "ignoreDeletes": "true"}, "nothing"),
    ],
)
def test_stream_stops_at_the_commits_that_no_option_skips(options: dict[str, str], stops_at: str) -> None:
    (read,) = list_streamed_reads(views(v=DeltaSource(SRC, options=options)), "v", {})
    assert read.stops_at == stops_at


@pytest.mark.parametrize(
    ("options", "set_options"),
    [
        ({}, {"startingVersion": "8"}),
        # The plan replaces `latest`, which would skip commits between the baseline and the first batch.
        ({"startingVersion": "latest"}, {"startingVersion": "8"}),
        ({"startingVersion": "3"}, {}),
        ({"startingTimestamp": "2026-01-01"}, {}),
    ],
)
def test_start_in_python_function_has_priority_unless_it_is_latest(
    options: dict[str, str], set_options: dict[str, str]
) -> None:
    nothing: Any = None
    assert TrackedSpark(nothing, {SRC.key: 8}).record_read(SRC, options) == set_options
