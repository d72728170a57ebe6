"""Texts of the two CSV trees of the state volume, projections of ``state.json``; `store` writes the files.

    <volume>/initial_versions/pipelineId=…/targetTable=…/part-00000.csv    the `MigrationStart`
    <volume>/tracking/pipelineId=…/targetTable=…/part-00000.csv            the `Tracking`

``spark.read.csv(<volume>/tracking, header=True)`` shows all targets, with pipelineId and targetTable from the
folders. A file has one row for each source and view. Each row repeats the fields of the whole target and the
number of rows, so a truncated file is detected.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import get_args
from urllib.parse import quote, unquote

from tableferry.pipelines.model.target_state import Baseline, Certainty, MigrationStart, PinnedCopy, Tracking
from tableferry.spark.tables import TableName

_START_COLUMNS = (
    "tableName", "viewName", "version", "sourceTableId", "within",
    "copyTable", "copyTableId", "copyVersion", "recordedAt", "oldStreams", "handOver", "rows",
)  # fmt: skip
_TRACKING_COLUMNS = (
    "tableName", "viewName", "version", "currentVersion", "ready",
    "copied", "copiedRows", "verified", "updatedAt", "startedFlows", "engine", "rows",
)  # fmt: skip


def start_to_csv(migration_start: MigrationStart) -> str:
    """Return a migration's start as CSV."""
    copy = migration_start.copy
    batches = ";".join(f"{query}:{batch}" for query, batch in sorted(migration_start.batches.items()))
    pinned = (
        copy.table,
        copy.table_id,
        copy.version,
        migration_start.recorded_at.isoformat(),
        batches,
        migration_start.certainty,
    )
    rows = [
        (baseline.table, view, baseline.version, baseline.table_id, baseline.within)
        for baseline in sorted(migration_start.baselines.values())
        for view in baseline.views or ("",)
    ]
    return _text(_START_COLUMNS, rows, pinned)


def start_from_csv(pipeline_id: str, target: TableName, text: str) -> MigrationStart:
    """Return the start from the text of `start_to_csv`.

    Raises:
        ValueError, KeyError, csv.Error: The text is truncated or has other columns.
    """
    rows = _rows(text)
    first = rows[0]
    baselines: dict[str, Baseline] = {}
    for row in rows:
        if row["tableName"]:
            table = table_name(row["tableName"])
            first_view = Baseline(
                table, row["sourceTableId"], int(row["version"]), within=row.get("within", "")
            )
            known = baselines.get(table.key, first_view)
            baselines[table.key] = replace(known, views=(*known.views, *filter(None, [row["viewName"]])))
    copy = PinnedCopy(table_name(first["copyTable"]), first["copyTableId"], int(first["copyVersion"]))
    recorded_at = datetime.fromisoformat(first["recordedAt"])
    old_streams = (entry.partition(":") for entry in first.get("oldStreams", "").split(";") if entry)
    batches = {query: int(batch) for query, _, batch in old_streams}
    # Older versions recorded no certainty and proved nothing.
    certainty: Certainty = first.get("handOver") or ("recorded" if batches else "assumed")  # type: ignore[assignment]
    if certainty not in get_args(Certainty):
        raise ValueError(f"handOver is {certainty}")
    return MigrationStart(pipeline_id, target, copy, baselines, recorded_at, batches, certainty)


def tracking_to_csv(migration_start: MigrationStart, tracking: Tracking) -> str:
    """Return a target's progress as CSV."""
    updated_at = tracking.updated_at.isoformat() if tracking.updated_at else None
    started = ";".join(quote(name, safe=" ") for name in tracking.started)
    whole = (tracking.copied, tracking.copied_rows, tracking.verified, updated_at, started, tracking.engine)
    rows = []
    for key, baseline in sorted(migration_start.baselines.items()):
        current = tracking.current.get(key, baseline.version)
        # A flow can start at an offset of Kafka before any record follows it.
        ready = "true" if current > baseline.version or baseline.is_kafka else "false"
        rows += [(baseline.table, view, baseline.version, current, ready) for view in baseline.views or ("",)]
    return _text(_TRACKING_COLUMNS, rows, whole)


def tracking_from_csv(text: str) -> Tracking:
    """Return the progress from the text of `tracking_to_csv`.

    Raises:
        ValueError, KeyError, csv.Error: The text is truncated or has other columns.
    """
    rows = _rows(text)
    first = rows[0]
    return Tracking(
        {table_name(row["tableName"]).key: int(row["currentVersion"]) for row in rows if row["tableName"]},
        int(first["copied"]) if first["copied"] else None,
        int(first["copiedRows"]) if first["copiedRows"] else None,
        first["verified"],
        datetime.fromisoformat(first["updatedAt"]) if first["updatedAt"] else None,
        tuple(unquote(name) for name in first.get("startedFlows", "").split(";") if name),
        first.get("engine", ""),
    )


def _text(header: Sequence[str], rows: Sequence[Sequence[object]], whole: Sequence[object]) -> str:
    """Write rows, each with the fields of the whole target; without rows, one row has only these."""
    rows = rows or [("",) * 5]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([*row, *whole, len(rows)] for row in rows)
    return out.getvalue()


def _rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a file.

    Raises:
        ValueError: The file is truncated, or a row lacks fields.
    """
    lines = list(csv.reader(io.StringIO(text), strict=True))
    if not text.endswith("\n") or len(lines) < 2:
        raise ValueError("it was cut short")
    header, *rows = lines
    if any(len(row) != len(header) for row in rows):
        raise ValueError("a row has too few or too many fields")
    records = [dict(zip(header, row, strict=True)) for row in rows]
    if any(int(row["rows"]) != len(rows) for row in records):
        raise ValueError(f"it was cut short: {len(rows)} of {records[0]['rows']} rows are left")
    return records


def table_name(text: str) -> TableName:
    """Parse a name or a path that `str(TableName)` wrote."""
    return TableName.at(text) if "/" in text else TableName.parse(text)
