"""The errors that a user can cause and can fix: each ends a command with exit code 1.

Anything else that reaches the user is a defect of Tableferry.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

HALF_MADE = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
"""Delta's condition where a table's first commit is there, and its name isn't in the catalog yet."""

HALF_MADE_REMEDY = (
    "if a process was killed while it created the table, and nothing in there is needed, remove that "
    "directory, and run again"
)

_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")


class TableferryError(Exception):
    """Base of every error that is the user's to fix; its message is one sentence with place and remedy."""


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong in a project's files.

    Attributes:
        file: The file, relative to the project where possible.
        path: The key path inside it, such as ``flowGroups[0].flows.f_orders.flowType``; empty for the file.
        message: What is wrong and how to fix it.
    """

    file: str
    path: str
    message: str

    def __str__(self) -> str:
        location = f"{self.file}: {self.path}" if self.path else self.file
        return f"{location}: {self.message}"


class SpecError(TableferryError):
    """The project's files are wrong; ``problems`` holds all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class StateError(TableferryError):
    """A state file can't be read, or belongs to somebody else."""


class SessionError(TableferryError):
    """No Spark session, or no login to a workspace, can be had."""


class TableError(TableferryError):
    """A table is missing, isn't Delta, was recreated, or lost the version that is needed."""


class TemplateError(TableferryError):
    """No bundle can be made from the template with these answers, or here."""


class Refused(TableferryError):
    """The plan can't go on safely; the message says how to go on."""


class Busy(TableferryError):
    """Another process is doing this very thing."""


def is_sparks(error: Exception) -> bool:
    """Return whether an error is Spark's, without loading Spark's classes to ask them."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def is_java_gone(error: BaseException | None) -> bool:
    """Return whether Spark's Java process, which py4j calls, ended under a call or before it."""
    while error is not None:
        if type(error).__name__ == "Py4JNetworkError":
            return True
        frames = traceback.walk_tb(error.__traceback__)
        if isinstance(error, ConnectionError) and any(
            frame.f_globals.get("__name__", "").startswith("py4j.") for frame, _ in frames
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def first_line(error: Exception) -> str:
    """Return the sentence of a Spark error, without its plan and its stack."""
    lines = str(error).strip().split("\n")
    # py4j says first which call failed, and then why.
    text = lines[1].lstrip(": ") if len(lines) > 1 and lines[1].startswith(": ") else lines[0]
    # Spark Connect's own errors have many lines, of which this one says why.
    if details := _DETAILS.search(str(error)):
        text = details[1]
    # Of a Python worker's traceback only the end says why.
    if traced := _TRACEBACK.search(str(error)):
        text = traced[1]
    text = re.sub(r"^(\w+\.)+\w+(Exception|Error): ", "", text)
    text = re.sub(r"\[STREAM_FAILED\] .* terminated with exception: ", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", text)
    return text.rstrip(". ")
