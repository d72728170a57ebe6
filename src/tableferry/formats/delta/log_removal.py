"""Remove a Delta log in storage without renames: claim its next version, remove its files, then the claim.

The claim is a commit that requires a protocol version which no reader and no writer supports. One process can
create it. After it no writer commits, and no reader reads half a log. A writer that read the table before the
claim and commits after the removal leaves a log without a beginning; nothing prevents that.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tableferry.storage.port import JoinablePath, Storage

FIRST = "00000000000000000000.json"

_OPERATION = "UNDO CONVERT"
# A protocol version that no reader and no writer supports.
_UNSUPPORTED = 999
# Longer than a claim, and shorter than most other commits, which can be very long.
_MOST_BYTES = 4096

_P = TypeVar("_P", bound=JoinablePath)
_S = TypeVar("_S", contravariant=True)


class LogStorage(Storage[_S], Protocol[_S]):
    """Storage that doesn't read a file that is too long."""

    def read_text(self, path: _S, most: int | None = None, /) -> str | None:
        """Return the file's text, or None if the file doesn't exist or has more than ``most`` bytes."""


@dataclass(frozen=True)
class Log(Generic[_P]):
    """A table's log.

    Attributes:
        storage: The storage of the log.
        folder: The path of the log's folder.
    """

    storage: LogStorage[_P]
    folder: _P

    def commit(self, version: int) -> _P:
        """Return the path of a version's commit."""
        return self.folder / f"{version:020}.json"

    def claim_of(self, version: int) -> str:
        """Return the text of the claim that has this version; empty if another commit has it, or none."""
        text = self.storage.read_text(self.commit(version), _MOST_BYTES) or ""
        return text if action(text, "commitInfo").get("operation") == _OPERATION else ""

    def create_claim(self, version: int, claim: str) -> str:
        """Claim a version unless a commit has it.

        Args:
            version: The version after the newest one.
            claim: The claim's text.

        Returns:
            The claim that has the version, which may be another process's; empty if a writer's commit has it.
        """
        if self.storage.create_text(self.commit(version), claim):
            return claim
        # The storage may have created the file and lost the response, so that a retry found the file.
        return self.claim_of(version)

    def remove(self, version: int, claim: str, guard: Callable[[], None] = lambda: None) -> bool:
        """Remove all files of a claimed log, the claim last.

        Args:
            version: The claimed version.
            claim: The claim's text.
            guard: Runs before each file is removed, and raises an error to end the removal.

        Returns:
            False if the version no longer has this claim; the other files are then left.
        """
        last = f"{version:020}.json"
        others = [name for name in self.storage.all_names(self.folder) if name not in (FIRST, last)]
        for name in (FIRST, *others, last):
            guard()
            if self.claim_of(version) != claim:
                return False
            self.storage.remove(self.folder / name)
        return True


def new_claim() -> str:
    """Return the text of a claim that no other process has."""
    now = time.time_ns() // 1_000_000
    actions = (
        {"commitInfo": {"timestamp": now, "operation": _OPERATION, "txnId": str(uuid.uuid4())}},
        {"protocol": {"minReaderVersion": _UNSUPPORTED, "minWriterVersion": _UNSUPPORTED}},
    )
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def action(text: str, name: str) -> dict[str, Any]:
    """Return the first action of this kind in a commit's text; empty if it has none."""
    # Not `splitlines`: a table's comment may contain other characters that it treats as line ends.
    for line in text.split("\n"):
        if line.startswith(f'{{"{name}"'):
            found = json.loads(line)[name]
            return found if isinstance(found, dict) else {}
    return {}
