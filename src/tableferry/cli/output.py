"""JSON for programs: what ``--output json`` prints of a command's answer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from tableferry.spark.tables import TableName


def as_json(value: object) -> str:
    """Write a value as indented JSON: dataclasses by their fields, table names and times as text."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False)


def _plain(value: object) -> Any:
    match value:
        case TableName():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | bool() | int() | float() | None:
            return value
        case Sequence() | set() | frozenset():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return str(value)
