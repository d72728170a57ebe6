"""The migration that a spec asks for, and whether it can be had."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.documents import Document
from tableferry.pipelines.specs.models import TableMigrationDetails
from tableferry.pipelines.specs.names import table_name
from tableferry.pipelines.specs.settings import GlobalSettings
from tableferry.spark.tables import TableName

_VALIDITY = ("__START_AT", "__END_AT")
_KAFKA_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


def migration(
    document: Document,
    views: Mapping[str, flows.View],
    target: flows.Target,
    settings: GlobalSettings,
    problems: list[Problem],
) -> flows.Migration | None:
    """Make the enabled migration of a spec, or say why it can't be had."""
    details = document.spec.table_migration_details
    if details is None:
        return None
    location = document.location.at("tableMigrationDetails")
    written = details.source_details
    table = table_name(written.database, written.table, location.at("sourceDetails", "table"), problems)
    if table is None or not details.enabled:
        return None
    if settings.complete and settings.table_migration_state_volume_path is None:
        problems.append(location.problem(Finding("SPEC_STATE_PATH_MISSING")))
    if details.auto_starting_versions_enabled:
        for view in views.values():
            if (option := _missing_start(view)) and not (_is_kafka(view) and _from_checkpoints(details)):
                file, _, path = view.location.partition(": ")
                problems.append(Problem.of(Finding("SPEC_SOURCE_WITHOUT_START", option=option), file, path))
    missing = _missing_validity(written.select_exp) if target.cdc and target.cdc.scd_type == 2 else []
    if missing:
        example = f"EFFECTIVE_{'FROM' if missing[0] == '__START_AT' else 'TO'} AS {missing[0]}"
        unmapped = Finding("SPEC_VALIDITY_COLUMNS_MISSING", columns=" and ".join(missing), example=example)
        problems.append(location.at("sourceDetails", "selectExp").problem(unmapped))
    without_starts = Finding("SPEC_HAND_OVER_WITHOUT_STARTS")
    if details.hand_over == "checkpoint" and not written.checkpoints:
        unnamed = Finding("SPEC_CHECKPOINT_NOT_NAMED")
        problems.append(location.at("sourceDetails", "checkpointLocation").problem(unnamed))
    if written.checkpoints and not details.auto_starting_versions_enabled:
        problems.append(location.at("sourceDetails", "checkpointLocation").problem(without_starts))
    if details.hand_over == "content" and not details.auto_starting_versions_enabled:
        problems.append(location.at("handOver").problem(without_starts))
    keys = {key.lower().strip("`") for key in target.cdc.keys} if target.cdc else set()
    if bad := [name for name in details.compare_except if name.lower() in keys]:
        keyed = Finding("SPEC_KEYS_NOT_COMPARED", columns=", ".join(bad))
        problems.append(location.at("compareExcept").problem(keyed))
    if details.mode == "takeOver":
        problems += _not_taken_over(document, table, target)
    hand_over = details.hand_over
    if hand_over == "auto":
        hand_over = "checkpoint" if written.checkpoints else "version"
    return flows.Migration(
        table,
        details.catalog_type,
        details.auto_starting_versions_enabled,
        tuple(written.select_exp),
        tuple(written.where_clause),
        tuple(written.except_columns),
        details.leave_out_not_representable,
        details.pinned_clone,
        details.mode == "takeOver",
        hand_over,
        details.hand_over != hand_over == "checkpoint" and details.mode == "copy",
        details.hand_over != hand_over == "version" and details.auto_starting_versions_enabled,
        written.checkpoints if hand_over == "checkpoint" else (),
        tuple(details.compare_except),
        str(location),
    )


def _not_taken_over(document: Document, table: TableName, target: flows.Target) -> Iterator[Problem]:
    """Say why a table's flows can't go on in itself."""
    location, details = document.location.at("tableMigrationDetails"), document.spec.table_migration_details
    assert details is not None
    source = details.source_details
    refusals = (
        (
            table.key != target.name.key,
            location.at("sourceDetails", "table"),
            Finding("SPEC_TAKE_OVER_OF_OTHER_TABLE", table=table, target=target.name),
        ),
        (
            not source.checkpoints or details.hand_over not in ("auto", "checkpoint"),
            location.at("sourceDetails", "checkpointLocation"),
            Finding("SPEC_TAKE_OVER_WITHOUT_CHECKPOINT"),
        ),
        (
            bool(source.select_exp or source.where_clause or source.except_columns),
            location.at("sourceDetails"),
            Finding("SPEC_TAKE_OVER_MAPS_ROWS"),
        ),
        (
            target.cdc is not None,
            document.location.at("cdcSettings"),
            Finding("SPEC_TAKE_OVER_OF_CDC_TARGET"),
        ),
    )
    return (place.problem(finding) for holds, place, finding in refusals if holds)


def _from_checkpoints(details: TableMigrationDetails) -> bool:
    """Say whether the old streams' checkpoints say where the flows go on."""
    return details.hand_over in ("auto", "checkpoint") and bool(details.source_details.checkpoints)


def _is_kafka(view: flows.View) -> bool:
    """Return whether a view reads Kafka, whose offsets a checkpoint can hand over."""
    return isinstance(view.source, flows.OtherSource) and view.source.format == "kafka"


def _missing_start(view: flows.View) -> str | None:
    """Say which options would give a followed source its start, if it has none."""
    if view.mode != "stream" or not isinstance(view.source, flows.OtherSource):
        return None
    options = {key.lower(): value for key, value in view.source.options.items()}
    if view.source.format == "kafka":
        known = any(key in options for key in _KAFKA_STARTS)
        return None if known else "startingOffsets or startingTimestamp"
    if "modifiedafter" in options or options.get("cloudfiles.includeexistingfiles", "").lower() == "false":
        return None
    if view.source.format == flows.AUTO_LOADER:
        return "modifiedAfter, or cloudFiles.includeExistingFiles to false,"
    return "modifiedAfter"


def _missing_validity(select: list[str]) -> list[str]:
    """List the validity columns that select expressions don't yield; none where that can't be judged."""
    if not select or all(any(_has_name(column, written) for written in select) for column in _VALIDITY):
        return []
    # Only here is SQL parsed, and loading the parser takes longer than reading a small project.
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        parsed = sqlglot.parse_one("SELECT " + ", ".join(select), dialect="databricks")
    except (SqlglotError, RecursionError):
        return []
    if not isinstance(parsed, sqlglot.exp.Query) or parsed.is_star:
        return []
    outputs = {name.upper() for name in parsed.named_selects}
    return [column for column in _VALIDITY if column not in outputs]


def _has_name(column: str, expression: str) -> bool:
    """Return whether an expression is a column under this name, as written by most projects."""
    return re.fullmatch(rf"\s*([\w.]+\s+as\s+)?{column}\s*", expression, re.IGNORECASE) is not None
