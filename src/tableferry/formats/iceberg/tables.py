"""Frozen data classes for an Iceberg table and the state in which it was read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table.

    Attributes:
        root: Its folder: a local path, or the URI of a store.
        catalog: The table's name, starting with a pyiceberg catalog; empty if the user named the folder.
    """

    root: str
    catalog: str = ""


@dataclass(frozen=True)
class IcebergState:
    """The state of an Iceberg table when it was read.

    Attributes:
        at: The metadata file that was read.
        by_id: The reason why columns must be matched by id; empty if they can be matched by name.
        last_id: The highest column id that was ever assigned.
    """

    table: IcebergTable
    at: str
    by_id: str = ""
    last_id: int = 0
    comment: str | None = None
    notes: tuple[str, ...] = ()
