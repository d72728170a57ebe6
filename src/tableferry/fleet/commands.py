"""Commands that people are told to run, as a shell takes them."""

from __future__ import annotations

import shlex


def command(words: str, *arguments: object) -> str:
    """Write a command of a fleet, with names and whatever else people chose after it."""
    return " ".join((f"tableferry fleet {words}", *(shlex.quote(str(argument)) for argument in arguments)))
