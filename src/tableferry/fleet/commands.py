"""Commands that people are told to run, as a shell takes them."""

from __future__ import annotations

import shlex

from tableferry.fleet.job import REWRITABLE, Job
from tableferry.fleet.pausing import reason


def command(words: str, *arguments: object) -> str:
    """Write a command of a fleet, with names and whatever else people chose after it."""
    return " ".join((f"tableferry fleet {words}", *(shlex.quote(str(argument)) for argument in arguments)))


def resume_command(job: Job) -> str:
    """Write the command by which a paused job goes on."""
    return command("resume", job.name, *(["--rewrite"] if reason(job) in REWRITABLE else []))
