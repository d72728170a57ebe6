"""Assertions about errors: by condition and parameters, never by sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from tableferry.errors import Finding, TableferryError


def names(findings: Iterable[Finding]) -> list[str]:
    """Return the conditions of findings."""
    return [finding.condition for finding in findings]


def check(error: object, condition: str, **parameters: object) -> None:
    """Assert that an error or a finding has a condition, and these parameters among others.

    A parameter is compared by its text; of a compiled pattern, a match anywhere in the text is enough.
    """
    assert isinstance(error, Finding | TableferryError), error
    assert error.condition == condition, str(error)
    for name, expected in parameters.items():
        found = str(error.parameters[name])
        if isinstance(expected, re.Pattern):
            assert expected.search(found), found
        else:
            assert found == str(expected)


@contextmanager
def raises(condition: str, **parameters: object) -> Iterator[pytest.ExceptionInfo[TableferryError]]:
    """Assert that the block raises an error with a condition, and these parameters among others."""
    with pytest.raises(TableferryError) as caught:
        yield caught
    check(caught.value, condition, **parameters)
