"""Write notifications to files, for a dry run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path

from tableferry.errors import StateError
from tableferry.fleet.notifications.emails import POLICY
from tableferry.fleet.notifications.smtp import SendResult


class FolderOutbox:
    """Writes each notification to an .eml file, which mail programs open; the file also lists Bcc."""

    def __init__(self, folder: Path) -> None:
        """Create the folder, and remove the files of an earlier dry run."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                "NOTIFICATION_FOLDER_NOT_CREATABLE", folder=folder, reason=error.strerror
            ) from error
        for old in folder.glob("level[123]-*.eml"):
            old.unlink()

    def send(self, email: EmailMessage, recipients: Sequence[str]) -> SendResult:
        """Write a notification."""
        level, digits = email["Message-ID"].strip("<>").split("@")[0].split("-")
        to = recipients[0] if len(recipients) == 1 else f"{len(recipients)}_readers"
        name = f"level{level}-{re.sub(r'[^a-z0-9.@_-]', '_', to)[:100]}-{digits[:12]}.eml"
        (self._folder / name).write_bytes(email.as_bytes(policy=POLICY.clone(utf8=True)))
        return SendResult()

    def close(self) -> None:
        """Do nothing: no file stays open."""
