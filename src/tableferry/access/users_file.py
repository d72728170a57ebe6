"""Read the users of tables from a CSV file, which a team can write from its audit logs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from tableferry.errors import TableError
from tableferry.spark.tables import METASTORES, TableName

HEADER = ["table", "user"]

Users = Mapping[str, tuple[str, ...]]
"""E-mail addresses by `key`."""

NO_USERS: Users = {}


def key(table: TableName) -> str:
    """Return the key of a table, the same for all spellings of its name."""
    parts = [part.lower() for part in table.parts]
    return ".".join(parts[1:] if len(parts) == 3 and parts[0] in METASTORES else parts)


def read_users(file: Path) -> Users:
    """Read a file whose first line is ``table,user``; each other line has a table and one of its users.

    Raises:
        TableError: The file can't be read, or a line is invalid.
    """
    users_by_table: dict[str, dict[str, None]] = {}
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.reader(lines)
            if [name.strip().lower() for name in next(rows, [])] != HEADER:
                raise TableError("USERS_FILE_HEADER_INVALID", file=file, header=",".join(HEADER))
            for row in rows:
                if row:
                    table, user = _pair(row, f"{file}:{rows.line_num}")
                    users_by_table.setdefault(key(table), {})[user] = None
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise TableError("USERS_FILE_NOT_READABLE", file=file, reason=reason) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError("USERS_FILE_NOT_CSV", file=file, reason=error) from error
    return {table: tuple(users) for table, users in users_by_table.items()}


def _pair(row: list[str], line: str) -> tuple[TableName, str]:
    if len(row) != len(HEADER) or not all(cell.strip() for cell in row):
        raise TableError("USERS_FILE_LINE_INVALID", line=line, row=row)
    try:
        table = TableName.parse(row[0])
    except TableError as error:
        raise TableError("USERS_FILE_TABLE_INVALID", line=line, text=row[0]) from error
    if len(table.parts) == 1:
        raise TableError("USERS_FILE_TABLE_WITHOUT_SCHEMA", line=line, table=table)
    return table, row[1].strip()
