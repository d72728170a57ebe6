"""Commands in messages, quoted for a shell."""

from __future__ import annotations

import shlex


def command(words: str, *arguments: object) -> str:
    """Return a `tableferry fleet` command with quoted arguments."""
    return " ".join((f"tableferry fleet {words}", *(shlex.quote(str(argument)) for argument in arguments)))
