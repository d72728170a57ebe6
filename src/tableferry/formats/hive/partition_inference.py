"""Infer a table's partition columns from its directory names, or check the names against declared columns.

Each directory is processed once, and its files share the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal as Number

from tableferry.errors import Refused
from tableferry.formats.hive.partition_paths import Directory, Layout, listed, parse_layout, require_one_shape
from tableferry.formats.hive.partition_values import cast, is_number, is_numeric, recognise
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.types import INTEGER, LONG, STRING, TIMESTAMP, Primitive


@dataclass(frozen=True)
class Partitions:
    """The partition columns of a table, from the root down, and every file's values.

    Attributes:
        values: For each file, in listing order, each column's value as the log writes it; None is null.
        same_values: A note for each column value that directories spell in two ways; also in ``notes``.
    """

    columns: tuple[PartitionColumn, ...]
    values: tuple[tuple[str | None, ...], ...]
    notes: tuple[str, ...] = ()
    same_values: tuple[str, ...] = ()


def infer(files: Sequence[DataFile]) -> Partitions:
    """Return the partition columns and values in the names of files' directories.

    A column is an int, long, date or timestamp if all its values are in the standard spelling of that type.
    Otherwise it's a string, with a note if the user may expect another type. Directories whose names aren't
    ``x=y`` give no columns; they may be above or below the partition directories.

    Raises:
        Refused: The files' directories have different columns.
    """
    layout = parse_layout(files)
    require_one_shape(layout)
    names = layout.directories[0].names if files else ()
    columns: list[PartitionColumn] = []
    values: list[dict[str, str]] = []
    notes = [*_layout_notes(layout)]
    for level, name in enumerate(names):
        examples = _examples(layout, level)
        type_, note = _settle(name, examples)
        columns.append(PartitionColumn(name, type_))
        values.append({text: cast(text, type_) for text in examples})
        notes += note
    return _partitions(layout, columns, values, notes)


_DECLARE = "Declare another type, such as string, or rename the directory."


def check(files: Sequence[DataFile], columns: Sequence[PartitionColumn], unfit: str = _DECLARE) -> Partitions:
    """Check the directories of files against declared partition columns, and return the values.

    Names are compared case-insensitively, and the table gets the declared spelling, as in Spark's own
    conversion.

    Args:
        files: The data files.
        columns: The declared columns.
        unfit: The advice to the user about a value that isn't valid for its column's type.

    Raises:
        Refused: A file's directories have other columns, or a value isn't valid for its column's type.
    """
    layout = parse_layout(files)
    for directory in layout.directories:
        _require_declared(directory, columns)
    values: list[dict[str, str]] = []
    notes, same = [*_layout_notes(layout)], list[str]()
    for level, column in enumerate(columns):
        level_values = {}
        for text, file in _examples(layout, level).items():
            try:
                level_values[text] = cast(text, column.type)
            except ValueError:
                raise Refused(
                    "PARTITION_VALUE_INVALID",
                    value=text,
                    type=column.type,
                    column=column.name,
                    file=file,
                    advice=unfit,
                ) from None
        values.append(level_values)
        notes += _zone_note(column)
        same += _fused(column, level_values)
    return replace(_partitions(layout, columns, values, notes + same), same_values=tuple(same))


def _partitions(
    layout: Layout,
    columns: Sequence[PartitionColumn],
    values: Sequence[dict[str, str]],
    notes: Sequence[str],
) -> Partitions:
    values_of_directory = [
        tuple(
            None if text is None else known[text] for text, known in zip(directory.texts, values, strict=True)
        )
        for directory in layout.directories
    ]
    of_files = tuple([values_of_directory[index] for index in layout.indexes])
    return Partitions(tuple(columns), of_files, tuple(notes))


def _settle(name: str, examples: dict[str, str]) -> tuple[Primitive, list[str]]:
    kinds: dict[Primitive, str] = {}
    for text in examples:
        kinds.setdefault(recognise(text), text)
    if not kinds:
        return STRING, [f"{name} is a string: all its values are null"]
    if kinds.keys() <= {INTEGER, LONG}:
        return (LONG if LONG in kinds else INTEGER), []
    if len(kinds) == 1:
        (type_,) = kinds
        column = PartitionColumn(name, type_)
        if type_ != STRING:
            fused = _fused(column, {text: cast(text, type_) for text in examples})
            return (STRING, [f"{name} is a string: {fused[0]}"]) if fused else (type_, _zone_note(column))
    odd = next((text for text in examples if is_number(text) and str(int(text)) != text), None)
    if odd is not None and all(map(is_number, examples)):
        return STRING, [
            f"{name} is a string: as a number '{odd}' would be {int(odd)}; declare the partition "
            "columns to have it as a number"
        ]
    if len(kinds) > 1:
        several = ", ".join(f"{type_} ('{text}')" for type_, text in kinds.items())
        return STRING, [f"{name} is a string: its values look like several types: {several}"]
    return STRING, []


def _fused(column: PartitionColumn, values: dict[str, str]) -> list[str]:
    """Return a note about two spellings of the same value of a column; empty if all values differ."""
    spellings: dict[str | Number, str] = {}
    for text, value in values.items():
        spelling = spellings.setdefault(Number(value) if is_numeric(column.type) else value, text)
        if spelling != text:
            return [f"'{spelling}' and '{text}' are the same value of {column.name}"]
    return []


def _examples(layout: Layout, level: int) -> dict[str, str]:
    """Return the distinct values of a level except null, each with the path of a file that has it."""
    examples: dict[str, str] = {}
    for directory in layout.directories:
        text = directory.texts[level]
        if text is not None:
            examples.setdefault(text, directory.first)
    return examples


def _zone_note(column: PartitionColumn) -> list[str]:
    return [f"{column.name}: times without a zone are taken as UTC"] if column.type == TIMESTAMP else []


def _layout_notes(layout: Layout) -> Iterator[str]:
    aside = sorted({directory.above for directory in layout.directories} - {""})
    if len(aside) > 1:
        yield (
            f"the files of {len(aside)} directories, such as {aside[0]} and {aside[1]}, are taken as one "
            "table; if each is a table, name them one by one or their parent with --recursive"
        )
    for name, text in layout.escapes[:1]:
        yield f"'{name}' is read as '{text}', as UTF-8; Spark reads such a name one character per octet"


def _require_declared(directory: Directory, columns: Sequence[PartitionColumn]) -> None:
    names = [column.name for column in columns]
    if len(names) != len(directory.names):
        raise Refused(
            "PARTITION_COLUMNS_MISMATCH",
            expected_count=len(names),
            expected=listed(names),
            found_count=len(directory.names),
            found=listed(directory.names),
            file=directory.first,
        )
    for name, actual in zip(names, directory.names, strict=True):
        if name.lower() != actual.lower():
            raise Refused("PARTITION_COLUMN_MISMATCH", expected=name, found=actual, file=directory.first)
