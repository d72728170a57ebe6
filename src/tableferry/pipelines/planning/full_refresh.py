"""Which tables a declarative pipeline may not refresh in full: it drops their rows before it looks for more.

What holds a copied history is kept, for nothing may be left to bring that again. So are its spec's staging
tables and whatever the pipeline makes for it to read: rows that come again would come twice into a table that
keeps its own, and a pipeline doesn't run where they might.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tableferry.errors import Finding
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import DataFlow, Target
from tableferry.pipelines.model.target_state import Stored
from tableferry.spark.tables import TableName

RESET_ALLOWED = "pipelines.reset.allowed"
"""The table property that says whether it may; a pipeline takes it for true."""


def allowed(table: Target) -> bool | None:
    """Return what the spec says of a table, if anything."""
    said = table.properties.get(RESET_ALLOWED)
    return None if said is None else said.lower() == "true"


def kept_tables(dataflows: Sequence[DataFlow], facts: Facts) -> frozenset[str]:
    """Return the keys of the tables of a pipeline that may not be refreshed in full."""
    tables = {table.name.key: table for dataflow in dataflows for table in dataflow.tables}
    kept = {
        table.name.key
        for dataflow in dataflows
        if _has_history(dataflow, facts)
        for table in dataflow.tables
        if not allowed(table)
    }
    while True:
        read = {
            key for key, _ in _read_by(kept, dataflows, facts) if key in tables and not allowed(tables[key])
        }
        if read <= kept:
            return frozenset(kept)
        kept |= read


def contradictions(
    dataflow: DataFlow, kept: frozenset[str], dataflows: Sequence[DataFlow], facts: Facts
) -> tuple[Finding, ...]:
    """Say which tables a spec allows to be refreshed in full that a kept one reads."""
    readers: Mapping[str, TableName] = dict(_read_by(kept, dataflows, facts))
    return tuple(
        Finding(
            "RESET_ALLOWED_CONTRADICTS_READER",
            location=table.location,
            table=table.name,
            property=RESET_ALLOWED,
            reader=readers[table.name.key],
        )
        for table in dataflow.tables
        if allowed(table) and table.name.key in readers
    )


def _has_history(dataflow: DataFlow, facts: Facts) -> bool:
    stored = facts.stored.get(dataflow.key, Stored())
    return bool(dataflow.migration or stored.migration_start or stored.finished)


def _read_by(
    kept: Iterable[str], dataflows: Sequence[DataFlow], facts: Facts
) -> Iterable[tuple[str, TableName]]:
    """Yield each table that flows into kept tables read, and the kept one."""
    for dataflow in dataflows:
        for flow in dataflow.flows:
            if flow.target.key in kept:
                for key in facts.needs(dataflow, flow):
                    yield key, flow.target
