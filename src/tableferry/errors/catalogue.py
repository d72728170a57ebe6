"""Read the catalogue of error conditions (message, remedy, class) from ``conditions.yml``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Literal

from tableferry.amounts import first_of

ErrorClass = Literal[
    "busy",
    "failed",
    "finding",
    "invalid_input",
    "invalid_spec",
    "invalid_table",
    "missing_package",
    "paused",
    "refused",
    "service",
    "session",
    "state",
    "template",
]
"""The class of a condition. Each has one exception class in `tableferry.errors`, except ``finding``."""

_NAME = re.compile(r"[A-Z][A-Z0-9]{3,}(?:_[A-Z0-9]+)*|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


@dataclass(frozen=True)
class Condition:
    """One error condition.

    Attributes:
        name: The stable name, such as ``NO_PARQUET_FILES``.
        subject: The subject, such as ``Partition columns``.
        error_class: The class, which determines the exception.
        message: The problem and its place, with named parameters in braces.
        remedy: The user's next step, with named parameters in braces.
    """

    name: str
    subject: str
    error_class: ErrorClass
    message: str
    remedy: str

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters in the message and the remedy."""
        fields = (field for text in (self.message, self.remedy) for _, field, _, _ in Formatter().parse(text))
        return frozenset(field for field in fields if field)


def is_condition_name(text: str) -> bool:
    """Return whether a text has the form of a condition's name."""
    return _NAME.fullmatch(text) is not None


# Not `functools.cache`, because Spark Connect sends these functions and their globals to a server by value.
_conditions: dict[str, Condition] = {}


def conditions() -> Mapping[str, Condition]:
    """Return all conditions by name."""
    if not _conditions:
        _conditions.update(_read())
    return _conditions


def _read() -> dict[str, Condition]:
    # Errors are rare, and this import takes longer than many commands that succeed.
    import yaml

    text = Path(__file__).with_name("conditions.yml").read_text(encoding="utf-8")
    subjects = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {
        name: Condition(name, subject, entry["class"], entry["message"], entry["remedy"])
        for subject, entries in subjects.items()
        for name, entry in entries.items()
    }


def as_sentence(text: str) -> str:
    """Return the text as a sentence, which begins with a capital and ends with a period."""
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".") + "."


def fill(text: str, parameters: Mapping[str, object]) -> str:
    """Replace the parameters in a message or a remedy; a long list is shortened to its first items.

    Raises:
        KeyError: A parameter is missing.
    """
    return text.format_map({name: _written(value) for name, value in parameters.items()})


def _written(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return first_of(value)
    return str(value)
