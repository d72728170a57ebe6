"""Notifications as files, for a dry run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path

from tableferry.errors import StateError
from tableferry.fleet.notifications.emails import POLICY
from tableferry.fleet.notifications.smtp import Delivery


class FolderOutbox:
    """Writes each notification as an .eml file, which mail programs open; recipients in Bcc stay readable."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, and take the notifications of an earlier dry run out of it."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                "NOTIFICATION_FOLDER_NOT_CREATABLE", folder=folder, reason=error.strerror
            ) from error
        for old in folder.glob("level[123]-*.eml"):
            old.unlink()

    def send(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        """Write a notification."""
        level, digest = message["Message-ID"].strip("<>").split("@")[0].split("-")
        to = recipients[0] if len(recipients) == 1 else f"{len(recipients)}_users"
        name = f"level{level}-{re.sub(r'[^a-z0-9.@_-]', '_', to)[:100]}-{digest[:12]}.eml"
        (self._folder / name).write_bytes(message.as_bytes(policy=POLICY.clone(utf8=True)))
        return Delivery()

    def close(self) -> None:
        """Nothing is open."""
