"""The migration of a spec's legacy table, from ``tableMigrationDetails``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tableferry.errors import Finding
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.spec_models import TableMigrationDetails
from tableferry.pipelines.specs.validation import SourceLocation, parse_table_name
from tableferry.spark.tables import TableName

_VALIDITY = ("__START_AT", "__END_AT")
_KAFKA_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


def compile_migration(
    spec: SourceLocation,
    details: TableMigrationDetails | None,
    views: Mapping[str, flows.View],
    target: flows.Target,
) -> flows.Migration | None:
    """Return the enabled migration of a spec; report settings that prevent it."""
    if details is None:
        return None
    location = spec.at("tableMigrationDetails")
    source = details.source_details
    table = parse_table_name(source.database, source.table, location.at("sourceDetails", "table"))
    if table is None or not details.enabled:
        return None
    if details.auto_starting_versions:
        _report_missing_starts(views, details, location)
    if target.cdc and target.cdc.scd_type == 2:
        _report_missing_validity_columns(source.select, location)
    keys = {key.lower() for key in target.cdc.key_columns} if target.cdc else set()
    if excluded := [name for name in details.uncompared_columns if name.lower() in keys]:
        location.at("compareExcept").report(Finding("SPEC_KEYS_NOT_COMPARED", columns=", ".join(excluded)))
    takes_over = details.mode == "takeOver"
    if takes_over:
        for place, finding in _find_take_over_conflicts(spec, details, table, target):
            place.report(finding)
    hand_over, is_auto = details.hand_over, details.hand_over == "auto"
    if hand_over == "auto":
        hand_over = "checkpoint" if source.checkpoints else "version"
    return flows.Migration(
        table,
        take_over=takes_over,
        hand_over=hand_over,
        content_fallback=is_auto and hand_over == "checkpoint" and not takes_over,
        content_first=is_auto and hand_over == "version" and details.auto_starting_versions,
        checkpoints=source.checkpoints if hand_over == "checkpoint" else (),
        location=str(location),
        **details.model_dump(exclude={"enabled", "mode", "hand_over", "source_details"}),
        **source.model_dump(include={"select", "where", "except_columns"}),
    )


def _find_take_over_conflicts(
    spec: SourceLocation, details: TableMigrationDetails, table: TableName, target: flows.Target
) -> Iterator[tuple[SourceLocation, Finding]]:
    """Find settings that prevent the flows from continuing in the legacy table."""
    source, place = details.source_details, spec.at("tableMigrationDetails", "sourceDetails")
    if table.key != target.name.key:
        yield place.at("table"), Finding("SPEC_TAKE_OVER_OF_OTHER_TABLE", table=table, target=target.name)
    if not source.checkpoints or details.hand_over not in ("auto", "checkpoint"):
        yield place.at("checkpointLocation"), Finding("SPEC_TAKE_OVER_WITHOUT_CHECKPOINT")
    if source.select or source.where or source.except_columns:
        yield place, Finding("SPEC_TAKE_OVER_MAPS_ROWS")
    if target.cdc is not None:
        yield spec.at("cdcSettings"), Finding("SPEC_TAKE_OVER_OF_CDC_TARGET")


def _report_missing_starts(
    views: Mapping[str, flows.View], details: TableMigrationDetails, location: SourceLocation
) -> None:
    """Report streaming sources that have no start, neither from their options nor from a checkpoint."""
    # The checkpoint of an old stream contains the offsets of Kafka topics.
    from_checkpoints = details.hand_over in ("auto", "checkpoint") and details.source_details.checkpoints
    for view in views.values():
        if view.mode != "stream" or not isinstance(view.source, flows.ReaderSource):
            continue
        option = _find_missing_start(view.source)
        if option and not (view.source.format == "kafka" and from_checkpoints):
            finding = Finding("SPEC_SOURCE_WITHOUT_START", option=option)
            location.parse(view.location).report(finding)


def _find_missing_start(source: flows.ReaderSource) -> str | None:
    """Return the options that would set the start of a source without a start."""
    options = {key.lower(): value for key, value in source.options.items()}
    if source.format == "kafka":
        known = any(key in options for key in _KAFKA_STARTS)
        return None if known else "startingOffsets or startingTimestamp"
    if "modifiedafter" in options or options.get("cloudfiles.includeexistingfiles", "").lower() == "false":
        return None
    if source.format == flows.AUTO_LOADER:
        return "modifiedAfter, or cloudFiles.includeExistingFiles to false,"
    return "modifiedAfter"


def _report_missing_validity_columns(select: tuple[str, ...], location: SourceLocation) -> None:
    """Report select expressions that don't return the validity columns of an SCD type 2 target."""
    if missing := _find_missing_validity(select):
        example = f"EFFECTIVE_{'FROM' if missing[0] == '__START_AT' else 'TO'} AS {missing[0]}"
        columns = " and ".join(missing)
        unmapped = Finding("SPEC_VALIDITY_COLUMNS_MISSING", columns=columns, example=example)
        location.at("sourceDetails", "selectExp").report(unmapped)


def _find_missing_validity(select: tuple[str, ...]) -> list[str]:
    """List the validity columns that select expressions don't return; if they can't be parsed, none."""
    if not select or all(any(_has_name(column, written) for written in select) for column in _VALIDITY):
        return []
    # Only this check parses SQL, and importing the parser takes longer than reading a small project.
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
    """Return whether an expression is this column, or a column with this alias, as most projects write it."""
    return re.fullmatch(rf"\s*([\w.]+\s+as\s+)?{column}\s*", expression, re.IGNORECASE) is not None
