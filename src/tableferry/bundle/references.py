"""References such as ``${var.catalog}``: where they stand in text, and which of them can't be read as one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from tableferry.bundle.problems import Problem
from tableferry.bundle.tree import Node

HEADS = ("var", "variables", "bundle", "workspace", "resources", "artifacts")

_WORD = r"[^\W\d_]+(?:[-_]*[^\W_]+)*"
_PATH = re.compile(rf"{_WORD}(?:\.{_WORD}(?:\[[0-9]+\])*)*(?:\[[0-9]+\])*")
# A doubled dollar sign is an escape.
_BRACES = re.compile(r"(?<!\$)\$\{([^{}]*)\}")
_STEP = re.compile(r"[^.\[\]]+")


@dataclass(frozen=True)
class Reference:
    """One ``${…}`` in a text.

    Attributes:
        text: All of it, with the braces.
        steps: The keys and list positions that it goes down.
    """

    text: str
    steps: tuple[str, ...]

    @property
    def head(self) -> str:
        """What kind of thing it refers to."""
        return self.steps[0]


def references(text: str) -> list[Reference]:
    """Return what the CLI takes for a reference, in order; what a shell would resolve isn't one."""
    references = []
    for match in _BRACES.finditer(text):
        if _PATH.fullmatch(match[1]):
            steps = tuple(_STEP.findall(match[1]))
            if steps[0] in HEADS:
                references.append(Reference(match[0], steps))
    return references


def pure(text: str) -> Reference | None:
    """Return the reference that a text is, and nothing else."""
    contained = references(text)
    return contained[0] if len(contained) == 1 and contained[0].text == text else None


def unreadable(node: Node) -> Iterator[Problem]:
    """Find what is meant as a reference, and would be deployed as it's written."""
    for match in _BRACES.finditer(node.text or ""):
        inside = match[1]
        if pure(match[0]) or not inside.strip():
            continue
        head = re.split(r"[.\[]", inside.strip())[0].strip()
        if head in HEADS:
            yield node.problem(
                f"'{match[0]}' isn't a reference as the CLI reads it, and stays as it is",
                "write names of letters, digits, '-' and '_', with '.' between them and no spaces",
            )
        elif head == "targets":
            yield node.problem(
                f"'{match[0]}' isn't resolved: a target can't be referred to",
                "use ${bundle.target}, or a variable that each target sets",
            )
        elif "." in inside and (close := get_close_matches(head, HEADS, n=1, cutoff=0.7)):
            yield node.problem(
                f"'{match[0]}' refers to '{head}', which there isn't", f"did you mean '{close[0]}'?"
            )
