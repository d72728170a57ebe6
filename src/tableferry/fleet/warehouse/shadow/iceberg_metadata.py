"""An Iceberg table's history as its metadata file tells it: pure.

The file has what no metadata table of Spark's has: the ids of columns, by which a column that was dropped and
added again isn't the same, and each snapshot's schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tableferry.fleet.warehouse.versions import NO_SNAPSHOT


@dataclass(frozen=True)
class Snapshot:
    """One snapshot.

    Attributes:
        id: Its number.
        parent: The one before it, if any.
        operation: ``append``, ``replace``, ``overwrite`` or ``delete``.
        schema: The id of its schema.
        changed: Whether it changed any partition.
        replaced_all: Whether it replaced every file that there was, as a static INSERT OVERWRITE does.
    """

    id: str
    parent: str | None
    operation: str
    schema: str
    changed: bool
    replaced_all: bool = False


@dataclass(frozen=True)
class Metadata:
    """What an Iceberg table's current metadata file says.

    Attributes:
        uuid: The table's own.
        current: The current snapshot, or `NO_SNAPSHOT`.
        schema: The id of the current snapshot's schema.
        newest: That of the newest schema, which no snapshot may have yet.
        snapshots: Those there are, by id.
        schemas: Each schema's fields, by its id and by the fields' names in lower case.
        specs: Each partition spec's fields, by its id.
    """

    uuid: str
    current: str
    schema: str
    newest: str
    snapshots: Mapping[str, Snapshot]
    schemas: Mapping[str, Mapping[str, Mapping[str, Any]]]
    specs: Mapping[int, Sequence[Mapping[str, Any]]]

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Metadata:
        """Read the file; version 1 of the format has one schema and one spec beside the lists."""
        number = content.get("current-snapshot-id")
        current = NO_SNAPSHOT if number in (None, -1) else str(number)
        newest = str(content.get("current-schema-id", 0))
        listed = content.get("snapshots", ())
        snapshots = {str(each["snapshot-id"]): _snapshot(each, newest) for each in listed}
        schemas = content.get("schemas") or [{"schema-id": 0, **content["schema"]}]
        specs = content.get("partition-specs") or [{"spec-id": 0, "fields": content["partition-spec"]}]
        return cls(
            content["table-uuid"],
            current,
            snapshots[current].schema if current in snapshots else newest,
            newest,
            snapshots,
            {
                str(each["schema-id"]): {one["name"].lower(): one for one in each["fields"]}
                for each in schemas
            },
            {each["spec-id"]: each["fields"] for each in specs},
        )

    def since(self, watermark: str) -> tuple[Snapshot, ...] | None:
        """Return the snapshots after one, oldest first; None if the current one doesn't descend from it."""
        found: list[Snapshot] = []
        at: str | None = self.current
        while at is not None and at != watermark:
            if (snapshot := self.snapshots.get(at)) is None:
                return None
            found.append(snapshot)
            at = snapshot.parent
        return tuple(reversed(found)) if at == watermark else None

    def same_columns(self, then: str, columns: Sequence[str]) -> bool:
        """Say whether columns are by their ids, and in depth, what they were in an earlier schema."""
        keys = [column.lower() for column in columns]
        before, now = self.schemas.get(then, {}), self.schemas[self.schema]
        return all(key in before and key in now and _same(before[key], now[key]) for key in keys)

    @property
    def is_renamed(self) -> bool:
        """Whether the newest schema renamed or dropped columns that the current snapshot has."""
        newest = self.schemas[self.newest]
        return any(
            name not in newest or not _same(field, newest[name])
            for name, field in self.schemas[self.schema].items()
        )

    def filled(self, then: str) -> tuple[str, ...]:
        """Return columns added since that have a value other than null in the rows that were there before."""
        before = {each["id"] for each in self.schemas.get(then, {}).values()}
        return tuple(
            each["name"]
            for each in self.schemas[self.schema].values()
            if each["id"] not in before and each.get("initial-default") is not None
        )

    def partition_fields(self, columns: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """Return, for each spec that tells a file's values of all these columns, its fields with them."""
        now = self.schemas[self.schema]
        sources = [now[column.lower()]["id"] for column in columns if column.lower() in now]
        # Metadata tables call a field by the newest of its names.
        names = {each["field-id"]: each["name"] for _, spec in sorted(self.specs.items()) for each in spec}
        found = {}
        for number, spec in self.specs.items():
            fields = {
                each["source-id"]: names[each["field-id"]] for each in spec if each["transform"] == "identity"
            }
            if len(sources) == len(columns) and all(source in fields for source in sources):
                found[number] = tuple(fields[source] for source in sources)
        return found


def _snapshot(content: Mapping[str, Any], schema: str) -> Snapshot:
    parent = content.get("parent-snapshot-id")
    summary = content.get("summary", {})
    return Snapshot(
        str(content["snapshot-id"]),
        None if parent in (None, -1) else str(parent),
        summary.get("operation", "overwrite"),
        str(content.get("schema-id", schema)),
        summary.get("changed-partition-count") != "0",
        # All files that there are came with it, and others went.
        summary.get("operation") == "overwrite"
        and int(summary.get("deleted-data-files", 0)) > 0
        and summary.get("total-data-files") == summary.get("added-data-files"),
    )


def _same(one: Any, other: Any) -> bool:
    """Compare fields without what no row depends on."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = (one.keys() | other.keys()) - {"doc", "required", "write-default"}
        return all(_same(one.get(key), other.get(key)) for key in keys)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
