"""Write the commit of `convert sync`: a folder's new files, deleted files and new columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tableferry import __version__
from tableferry.convert import commit_contents
from tableferry.convert.commit_contents import Contents, as_line
from tableferry.convert.converted_table import Table

OPERATION = "SYNC"
"""The operation of this commit in the table's history."""


@dataclass(frozen=True)
class Changes:
    """The changes of a table's next version.

    Attributes:
        table: The table at its current version.
        added: The new files, with the schema of the next version.
        restated: Files of the current version whose statistics are rewritten, because a column's type widens.
        removed: The paths of removed files, as the log stores them.
    """

    table: Table
    added: Contents
    restated: Contents | None = None
    removed: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The version that the commit creates."""
        return self.table.version + 1


def lines(changes: Changes, now: int, identity: str) -> Iterator[str]:
    """Yield the commit's lines.

    Args:
        changes: The changes that the commit makes.
        now: Milliseconds since 1970, UTC.
        identity: A unique transaction id, by which the writer recognizes its own commit.
    """
    table = changes.table
    yield as_line({"commitInfo": _commit_info(changes, now, identity)})
    if (needed := _protocol(changes)) is not None:
        yield as_line({"protocol": needed})
    if changes.added.schema != table.schema:
        described = commit_contents.metadata(changes.added, now)
        yield as_line({"metaData": {**described, **table.about}})
    # With the table's own version in the transaction, a later run doesn't check the commits up to it again.
    transaction = {"appId": table.application, "version": changes.version, "lastUpdated": now}
    yield as_line({"txn": transaction})
    for path in changes.removed:
        yield as_line({"remove": {"path": path, "deletionTimestamp": now, "dataChange": True}})
    if changes.restated is not None:
        yield from commit_contents.adds(changes.restated, changes=False)
    yield from commit_contents.adds(changes.added)


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
    """Return the protocol that new columns need; None if the table's protocol is sufficient."""
    reading, writing = changes.table.features
    if set(commit_contents.features_of(changes.added.schema)) <= {*reading, *writing}:
        return None
    return commit_contents.protocol(replace(changes.added, features=reading, writer_features=writing))
