"""The commit by which a converted table follows its folder: files that came, files that went, new columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tableferry import __version__
from tableferry.convert.log import contents
from tableferry.convert.log.contents import Contents, as_line
from tableferry.convert.log.table import Table

OPERATION = "SYNC"
"""What such a commit calls itself."""


@dataclass(frozen=True)
class Changes:
    """What a table's next version changes.

    Attributes:
        table: The table before.
        added: Its new files, under the schema that it is to have.
        restated: Files that it has already, whose statistics are written anew as a column's type widens.
        removed: The files that went, by the names that the log has for them.
    """

    table: Table
    added: Contents
    restated: Contents | None = None
    removed: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The version that this makes."""
        return self.table.version + 1


def lines(changes: Changes, now: int, identity: str) -> Iterator[str]:
    """Yield the commit's lines.

    Args:
        changes: What it says.
        now: Milliseconds since 1970, UTC.
        identity: What no other commit says of itself, by which its writer knows it again.
    """
    table = changes.table
    yield as_line({"commitInfo": _commit_info(changes, now, identity)})
    if (needed := _protocol(changes)) is not None:
        yield as_line({"protocol": needed})
    if changes.added.schema != table.schema:
        described = contents.metadata(changes.added, now)
        yield as_line({"metaData": {**described, **table.about}})
    # The version is that of the table: whoever reads it later knows that all up to it was followed.
    transaction = {"appId": table.application, "version": changes.version, "lastUpdated": now}
    yield as_line({"txn": transaction})
    for path in changes.removed:
        yield as_line({"remove": {"path": path, "deletionTimestamp": now, "dataChange": True}})
    if changes.restated is not None:
        yield from contents.adds(changes.restated, changes=False)
    yield from contents.adds(changes.added)


def _commit_info(changes: Changes, now: int, identity: str) -> dict[str, Any]:
    added = changes.added.files
    return {
        "timestamp": now,
        "operation": OPERATION,
        "operationParameters": {"collectStats": changes.added.statistics},
        "readVersion": changes.table.version,
        "isolationLevel": "Serializable",
        "isBlindAppend": not changes.removed and changes.restated is None,
        "operationMetrics": {
            "numAddedFiles": str(len(added)),
            "numAddedBytes": str(sum(file.size for file in added)),
            "numOutputRows": str(sum(footer.rows for footer in changes.added.footers)),
            "numRemovedFiles": str(len(changes.removed)),
        },
        "engineInfo": f"Tableferry/{__version__}",
        "txnId": identity,
    }


def _protocol(changes: Changes) -> dict[str, Any] | None:
    """Return the protocol that new columns ask for; None if the table's has all they need."""
    reading, writing = changes.table.features
    if set(contents.features_of(changes.added.schema)) <= {*reading, *writing}:
        return None
    return contents.protocol(replace(changes.added, features=reading, writer_features=writing))
