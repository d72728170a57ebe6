"""Written data fixed as the message about it says, so that one reading finds what is wrong behind it."""

from __future__ import annotations

import difflib
from typing import Any

# Words for people: what they say has no part in any other check.
_WORDS = ("dataFlowGroup", "sourceSystem", "sourceViewName")
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def take_out(data: Any, steps: list[str | int]) -> bool:
    """Take a key out of a mapping; say whether it was there."""
    above = _above(data, steps)
    if not isinstance(above, dict) or steps[-1] not in above:
        return False
    del above[steps[-1]]
    return True


def rename(data: Any, steps: list[str | int], name: str) -> bool:
    """Give a key another name, or take it out where that name is taken."""
    above = _above(data, steps)
    value = above.pop(steps[-1])
    above.setdefault(name, value)
    return True


def choose(data: Any, steps: list[str | int], allowed: list[str], *, cutoff: float) -> bool:
    """Put the allowed value in place that a wrong one resembles; say whether there is one."""
    above = _above(data, steps)
    value = above[steps[-1]]
    close = difflib.get_close_matches(value, allowed, n=1, cutoff=cutoff) if isinstance(value, str) else []
    if close:
        above[steps[-1]] = close[0]
    return bool(close)


def convert(data: Any, steps: list[str | int], error_type: str) -> bool:
    """Turn a value into the one that pydantic's error type says is meant; say whether there is one."""
    above = _above(data, steps)
    value: Any = above.get(steps[-1]) if isinstance(above, dict) else above[steps[-1]]
    done: Any = None
    match error_type, value:
        case "missing", None if steps[-1] in _WORDS:
            done = "?"
        case "string_type", bool():
            done = "true" if value else "false"
        case "string_type", int() | float():
            done = str(value)
        case "bool_type", str():
            done = _TRUTHS.get(value.lower())
        case "bool_type", 0 | 1:
            done = bool(value)
        case "list_type", str():
            done = [value]
    if done is None:
        return False
    above[steps[-1]] = done
    return True


def _above(data: Any, steps: list[str | int]) -> Any:
    for step in steps[:-1]:
        data = data[step]
    return data
