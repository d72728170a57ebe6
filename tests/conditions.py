"""Assertions about errors: by condition and parameters, never by sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tableferry.errors import TableferryError


def check(error: object, condition: str, **parameters: object) -> None:
    """Assert that an error has a condition, and these parameters among others.

    A parameter is compared by its text; of a compiled pattern, a match anywhere in the text is enough.
    """
    assert isinstance(error, TableferryError), error
    assert error.condition == condition, str(error)
    for name, expected in parameters.items():
        found = str(error.parameters[name])
        if isinstance(expected, re.Pattern):
            assert expected.search(found), found
        else:
            assert found == str(expected)


@contextmanager
def raises(condition: str, **parameters: object) -> Iterator[None]:
    """Assert that the block raises an error with a condition, and these parameters among others."""
    with pytest.raises(TableferryError) as caught:
        yield
    check(caught.value, condition, **parameters)
