"""The exceptions for errors that the user can fix; each ends a command with exit code 1.

``conditions.yml`` lists every condition with its message and its remedy. Any other exception that reaches the
user is a defect of Tableferry.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Self, cast

from tableferry.errors.catalogue import Condition, ErrorClass, conditions, fill, is_condition_name

HALF_MADE = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
"""Delta's condition for a table whose first commit exists, but whose name isn't in the catalog yet."""

_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")


class _Described:
    """The text of a condition with its parameters.

    Attributes:
        condition: The name of the condition; empty if a complete message was passed.
        parameters: The values of its parameters.
    """

    condition: str
    parameters: Mapping[str, object]

    @property
    def message(self) -> str:
        """The problem and its place."""
        listed = self._listed()
        text = fill(listed.message, {name: _text(value) for name, value in self.parameters.items()})
        if "location" in self.parameters and "location" not in listed.parameters:
            return f"{self.parameters['location']}: {text}"
        return text

    @property
    def remedy(self) -> str:
        """The user's next step; empty if a complete message was passed, which contains it."""
        return fill(self._listed().remedy, self.parameters) if self.condition else ""

    @property
    def one_line(self) -> str:
        """The complete text in one line."""
        return str(self).replace("\n", " ")

    @property
    def sentence(self) -> str:
        """The message without its final period, for use in another sentence."""
        return self.message.removesuffix(".")

    def _listed(self) -> Condition:
        return conditions()[self.condition]

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}\n{self.remedy}" if self.condition else self.message

    def to_dict(self) -> dict[str, object]:
        """Return the condition in the format of ``--output json``."""
        return {
            "condition": self.condition,
            "parameters": {name: _plain(value) for name, value in self.parameters.items()},
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, init=False)
class Finding(_Described):
    """One result of a check: a condition with its parameters.

    Args:
        condition: The name of a condition in ``conditions.yml``.
        parameters: The values of the parameters in the condition's message and remedy.
    """

    condition: str
    parameters: Mapping[str, object] = field(hash=False)

    def __init__(self, condition: str, /, **parameters: object) -> None:
        object.__setattr__(self, "condition", condition)
        object.__setattr__(self, "parameters", parameters)

    def __str__(self) -> str:
        return super().__str__()

    def at(self, location: str) -> Finding:
        """Return the finding with the place in a file, or another subject, in front of its message."""
        return Finding(self.condition, **{**self.parameters, "location": location})


class TableferryError(_Described, Exception):
    """Base of every error that the user can fix.

    Args:
        condition: The name of a condition in ``conditions.yml``. Code of a bundle
            may pass a complete message instead.
        parameters: The values of the parameters in the condition's message and remedy.

    Attributes:
        error_class: The class of the conditions that are raised as this exception.
    """

    error_class: ClassVar[ErrorClass | None] = None

    def __init__(self, condition: str, /, **parameters: object) -> None:
        super().__init__(condition)
        self.condition = condition if is_condition_name(condition) else ""
        self.parameters = parameters

    @property
    def message(self) -> str:
        """The problem and its place."""
        return super().message if self.condition else str(self.args[0])

    @property
    def finding(self) -> Finding:
        """The error as the result of a check."""
        if not self.condition:
            return Finding("OTHER_ERROR", reason=self.message)
        return Finding(self.condition, **self.parameters)

    def at(self, location: str) -> Self:
        """Return the error with the place in a file, or another subject, in front of its message."""
        if not self.condition:
            return type(self)(f"{location}: {self.message}")
        return type(self)(self.condition, **{**self.parameters, "location": location})

    def text_about(self, subject: str) -> str:
        """Return the complete text, with the subject in front if the message doesn't contain it."""
        return str(self) if subject in self.message else f"{subject}: {self}"


def _text(value: object) -> object:
    """Write findings and problems one below the other; leave any other value as it is."""
    if isinstance(value, Sequence) and value and isinstance(value[0], Finding | Problem):
        return "\n".join(map(str, value))
    return value


def _plain(value: object) -> object:
    if isinstance(value, Finding):
        return value.to_dict()
    if isinstance(value, Problem):
        return value.to_dict()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float) or value is None else str(value)


@dataclass(frozen=True, order=True)
class Problem:
    """One problem in a project's files.

    Attributes:
        file: The file, relative to the project where possible.
        path: The key path inside the file, such as ``flowGroups[0].flows.f_orders.flowType``; empty if the
            problem concerns the whole file.
        message: The problem. Without a condition, also its remedy.
        remedy: The user's next step.
        condition: The name of the condition; empty if a complete message was passed.
        parameters: The values of the condition's parameters.
    """

    file: str
    path: str
    message: str
    remedy: str = ""
    condition: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(finding: Finding, file: str, path: str) -> Problem:
        """Return a finding as the problem of a place in a file."""
        return Problem(file, path, finding.message, finding.remedy, finding.condition, finding.parameters)

    @property
    def text(self) -> str:
        """The problem and its remedy in one line, without the place."""
        return f"[{self.condition}] {self.message} {self.remedy}" if self.condition else self.message

    def to_dict(self) -> dict[str, object]:
        """Return the problem in the format of ``--output json``."""
        values = {name: _plain(value) for name, value in self.parameters.items()}
        return {**asdict(replace(self, parameters={})), "parameters": values}

    def __str__(self) -> str:
        location = f"{self.file}: {self.path}" if self.path else self.file
        return f"{location}: {self.text}"


class SpecError(TableferryError):
    """The project's files have errors, which ``problems`` lists."""

    error_class: ClassVar[ErrorClass | None] = "invalid_spec"

    def __init__(self, condition: str, /, **parameters: object) -> None:
        super().__init__(condition, **parameters)
        problems = cast("Sequence[Problem]", parameters.get("problems", ()))
        self.problems = tuple(sorted(problems))
        self.parameters = {**parameters, "problems": self.problems}


class StateError(TableferryError):
    """A file can't be read or written, or belongs to another process."""

    error_class: ClassVar[ErrorClass | None] = "state"


class SessionError(TableferryError):
    """A Spark session, a login or a package is missing."""

    error_class: ClassVar[ErrorClass | None] = "session"


class MissingPackage(SessionError):
    """A Python package is missing that only some commands need."""

    error_class: ClassVar[ErrorClass | None] = "missing_package"


class TableError(TableferryError):
    """A table is missing, isn't a Delta table, was recreated, or no longer has the required version."""

    error_class: ClassVar[ErrorClass | None] = "invalid_table"


class TemplateError(TableferryError):
    """The template can't create a bundle with these answers or in this environment."""

    error_class: ClassVar[ErrorClass | None] = "template"


class Refused(TableferryError):
    """The plan can't continue without risk to the tables."""

    error_class: ClassVar[ErrorClass | None] = "refused"

    @staticmethod
    def of(findings: Sequence[Finding]) -> Refused:
        """Return the error for the findings of a check: the only one itself, or the list of them."""
        if len(findings) == 1:
            return Refused(findings[0].condition, **findings[0].parameters)
        return Refused("SEVERAL_FINDINGS", count=len(findings), findings=tuple(findings))


class Failed(TableferryError):
    """Spark, or code of the project, raised an error in a step."""

    error_class: ClassVar[ErrorClass | None] = "failed"


class InputError(TableferryError):
    """An argument, an option or a setting is invalid."""

    error_class: ClassVar[ErrorClass | None] = "invalid_input"


class ServiceError(TableferryError):
    """A service, such as the queue's database or the mail server, can't be reached or refuses a request."""

    error_class: ClassVar[ErrorClass | None] = "service"


class Paused(Refused):
    """A fleet's job waits for a person."""

    error_class: ClassVar[ErrorClass | None] = "paused"


class Busy(TableferryError):
    """Another process works on the same table or file; a later run can succeed."""

    error_class: ClassVar[ErrorClass | None] = "busy"


def is_sparks(error: Exception) -> bool:
    """Return whether pyspark or py4j raised an error, without importing them.

    Delta's package has subclasses of pyspark's errors.
    """
    return any(base.__module__.startswith(("pyspark.", "py4j.")) for base in type(error).__mro__)


def is_java_gone(error: BaseException | None) -> bool:
    """Return whether Spark's Java process ended before or during a py4j call."""
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
    """Return the message of a Spark error, without its plan and its stack trace."""
    lines = str(error).strip().split("\n")
    # py4j's first line names the failed call, its second line the reason.
    text = lines[1].lstrip(": ") if len(lines) > 1 and lines[1].startswith(": ") else lines[0]
    # An error of Spark Connect's transport has many lines; `details` contains the reason.
    if details := _DETAILS.search(str(error)):
        text = details[1]
    # The last line of a Python worker's traceback contains the reason.
    if traced := _TRACEBACK.search(str(error)):
        text = traced[1]
    text = re.sub(r"^(\w+\.)+\w+(Exception|Error): ", "", text)
    text = re.sub(r"\[STREAM_FAILED\] .* terminated with exception: ", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", text)
    return text.rstrip(". ")
