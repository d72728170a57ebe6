"""An Iceberg table's history, parsed from its metadata file; pure functions.

Spark's metadata tables lack each snapshot's schema and the columns' ids. The ids show that a column was
dropped and added again under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT


@dataclass(frozen=True)
class Snapshot:
    """One snapshot.

    Attributes:
        parent: The id of its parent snapshot, if any.
        operation: ``append``, ``replace``, ``overwrite`` or ``delete``.
        schema: The id of its schema.
        changed: Whether it changed any partition.
        replaced_all: Whether it replaced every file of the table, as a static INSERT OVERWRITE does.
    """

    id: str
    parent: str | None
    operation: str
    schema: str
    changed: bool
    replaced_all: bool = False


@dataclass(frozen=True)
class Metadata:
    """An Iceberg table's current metadata.

    Attributes:
        current: The current snapshot, or `NO_SNAPSHOT`.
        schema: The id of the current snapshot's schema.
        newest: The id of the newest schema, which no snapshot may have yet.
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
        """Parse the file; version 1 of the format may have one schema and one spec instead of lists."""
        current = _snapshot_id(content.get("current-snapshot-id")) or NO_SNAPSHOT
        newest = str(content.get("current-schema-id", 0))
        snapshots = {
            str(snapshot["snapshot-id"]): _snapshot(snapshot, newest)
            for snapshot in content.get("snapshots", ())
        }
        schemas = content.get("schemas") or [{"schema-id": 0, **content["schema"]}]
        specs = content.get("partition-specs") or [{"spec-id": 0, "fields": content["partition-spec"]}]
        return cls(
            content["table-uuid"],
            current,
            snapshots[current].schema if current in snapshots else newest,
            newest,
            snapshots,
            {
                str(schema["schema-id"]): {field["name"].lower(): field for field in schema["fields"]}
                for schema in schemas
            },
            {spec["spec-id"]: spec["fields"] for spec in specs},
        )

    def since(self, watermark: str) -> tuple[Snapshot, ...] | None:
        """Return the snapshots after the watermark, oldest first; None if the watermark isn't an ancestor."""
        snapshots: list[Snapshot] = []
        snapshot_id: str | None = self.current
        while snapshot_id is not None and snapshot_id != watermark:
            if (snapshot := self.snapshots.get(snapshot_id)) is None:
                return None
            snapshots.append(snapshot)
            snapshot_id = snapshot.parent
        return tuple(reversed(snapshots)) if snapshot_id == watermark else None

    def same_columns(self, schema: str, columns: Sequence[str]) -> bool:
        """Return whether columns have the same ids and nested fields as in an earlier schema."""
        keys = [column.lower() for column in columns]
        before, now = self.schemas.get(schema, {}), self.schemas[self.schema]
        return all(key in before and key in now and _same(before[key], now[key]) for key in keys)

    @property
    def is_renamed(self) -> bool:
        """Whether the newest schema renamed or dropped columns that the current snapshot has."""
        newest = self.schemas[self.newest]
        return any(
            name not in newest or not _same(field, newest[name])
            for name, field in self.schemas[self.schema].items()
        )

    def columns_with_initial_default(self, schema: str) -> tuple[str, ...]:
        """Return the columns added after a schema whose value in older rows isn't null."""
        before = {field["id"] for field in self.schemas.get(schema, {}).values()}
        return tuple(
            field["name"]
            for field in self.schemas[self.schema].values()
            if field["id"] not in before and field.get("initial-default") is not None
        )

    def first_partition_columns(self) -> tuple[str, ...]:
        """Return the columns of the table's first partition spec, by their current names."""
        names = {field["id"]: field["name"] for field in self.schemas[self.schema].values()}
        fields = self.specs[min(self.specs)] if self.specs else ()
        return tuple(
            names[field["source-id"]]
            for field in fields
            if field["transform"] == "identity" and field["source-id"] in names
        )

    def partition_fields(self, columns: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """Return the fields of these columns, for each spec that partitions by all of them.

        A file of such a spec has one value for each column.
        """
        now = self.schemas[self.schema]
        sources = [now[column.lower()]["id"] for column in columns if column.lower() in now]
        # Metadata tables use the newest name of a field.
        names = {field["field-id"]: field["name"] for _, spec in sorted(self.specs.items()) for field in spec}
        fields_by_spec = {}
        for spec_id, spec in self.specs.items():
            identity = (field for field in spec if field["transform"] == "identity")
            fields = {field["source-id"]: names[field["field-id"]] for field in identity}
            if len(sources) == len(columns) and all(source in fields for source in sources):
                fields_by_spec[spec_id] = tuple(fields[source] for source in sources)
        return fields_by_spec


def _snapshot_id(number: int | None) -> str | None:
    """Return a snapshot's id as text; None for -1, which means no snapshot."""
    return None if number in (None, -1) else str(number)


def _snapshot(content: Mapping[str, Any], schema: str) -> Snapshot:
    summary = content.get("summary", {})
    return Snapshot(
        str(content["snapshot-id"]),
        _snapshot_id(content.get("parent-snapshot-id")),
        summary.get("operation", "overwrite"),
        str(content.get("schema-id", schema)),
        summary.get("changed-partition-count") != "0",
        # It added all files of the snapshot and deleted others.
        summary.get("operation") == "overwrite"
        and int(summary.get("deleted-data-files", 0)) > 0
        and summary.get("total-data-files") == summary.get("added-data-files"),
    )


def _same(before: Any, after: Any) -> bool:
    """Return whether fields are the same, except for attributes that don't affect rows."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = (before.keys() | after.keys()) - {"doc", "required", "write-default"}
        return all(_same(before.get(key), after.get(key)) for key in keys)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool(before == after)
