"""Read partition columns and the text of their values from the directories below a table's root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tableferry.amounts import counted
from tableferry.errors import Refused
from tableferry.formats.hive.partitions import NULL, has_escaped_utf8, unescape
from tableferry.formats.parquet.files import DataFile

_NULLS = (NULL, "")


@dataclass(frozen=True)
class Directory:
    """A directory that contains data files.

    Attributes:
        first: The path of its first file.
        names: The partition columns in its path, from the root down.
        texts: The decoded values of these columns; None is null.
        above: The path above the partition directories, such as ``data``.
    """

    first: str
    names: tuple[str, ...]
    texts: tuple[str | None, ...]
    above: str


@dataclass(frozen=True)
class Layout:
    """The directories of some files.

    Attributes:
        directories: The distinct directories, in the listing's order.
        indexes: For each file, the index of its directory.
        escapes: Directory names with escaped UTF-8, and the decoded names. Spark reads a character for each
            octet instead.
    """

    directories: tuple[Directory, ...]
    indexes: tuple[int, ...]
    escapes: tuple[tuple[str, str], ...]

    def counts(self) -> Counter[int]:
        """Return the number of files in each directory, by the directory's index."""
        return Counter(self.indexes)


def parse_layout(files: Sequence[DataFile]) -> Layout:
    """Return the directories of files and their partition values; each directory name is parsed once.

    Raises:
        Refused: A directory's name or position isn't valid for a partition.
    """
    index_of: dict[str, int] = {}
    first: list[str] = []
    indexes: list[int] = []
    for file in files:
        path = file.path
        folder = path[: path.rfind("/") + 1]
        index = index_of.get(folder)
        if index is None:
            index = index_of[folder] = len(first)
            first.append(path)
        indexes.append(index)
    levels: dict[str, tuple[str, str | None] | None] = {}
    directories = tuple(
        _directory(folder, path, levels) for folder, path in zip(index_of, first, strict=True)
    )
    return Layout(directories, tuple(indexes), tuple(_escapes(levels)))


def require_one_shape(layout: Layout) -> None:
    """Check that all directories have the same partition columns and the same path above them.

    Raises:
        Refused: Two directories differ.
    """
    shapes: dict[tuple[str, ...], list[int]] = {}
    for index, directory in enumerate(layout.directories):
        shapes.setdefault(directory.names, []).append(index)
    if len(shapes) > 1:
        raise _different_columns(layout, shapes)
    above = {directory.above: directory for directory in layout.directories if directory.names}
    if len(above) > 1:
        first, second, *_ = above.values()
        raise Refused("PARTITIONS_BELOW_DIFFERENT_DIRECTORIES", file=first.first, other=second.first)


def listed(names: Sequence[str]) -> str:
    """Return column names in the format of Spark's own conversion."""
    return f"[{', '.join(f'`{name}`' for name in names)}]"


def _escapes(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        if has_escaped_utf8(name):
            yield name, unescape(name)


def _directory(folder: str, first: str, levels: dict[str, tuple[str, str | None] | None]) -> Directory:
    columns: list[tuple[str, str | None]] = []
    plain: list[list[str]] = [[], []]
    for name in folder.split("/")[:-1]:
        level = levels[name] if name in levels else levels.setdefault(name, _level(name, first))
        if level is None:
            plain[bool(columns)].append(name)
        elif plain[1]:
            raise Refused("PARTITION_DIRECTORY_BETWEEN", file=first, directory=plain[1][0])
        else:
            columns.append(level)
    names, texts = tuple(name for name, _ in columns), tuple(text for _, text in columns)
    twice = [name for name, times in Counter(name.lower() for name in names).items() if times > 1]
    if twice:
        raise Refused("DUPLICATE_PARTITION_DIRECTORY", file=first, column=twice[0])
    return Directory(first, names, texts, "/".join(plain[0]))


def _level(name: str, file: str) -> tuple[str, str | None] | None:
    column, equals, text = name.partition("=")
    if not equals:
        return None
    if not column:
        raise Refused("PARTITION_DIRECTORY_WITHOUT_COLUMN", file=file, directory=name)
    return unescape(column), None if text in _NULLS else unescape(text)


def _different_columns(layout: Layout, shapes: dict[tuple[str, ...], list[int]]) -> Refused:
    columns, others, *_ = shapes
    if [name.lower() for name in columns] == [name.lower() for name in others]:
        first, second = (layout.directories[shapes[names][0]].first for names in (columns, others))
        return Refused(
            "PARTITION_COLUMNS_SPELLED_DIFFERENTLY",
            file=first,
            other=second,
            columns=listed(columns),
            other_columns=listed(others),
        )
    counts = layout.counts()
    few, indexes = min(shapes.items(), key=lambda shape: sum(counts[index] for index in shape[1]))
    many = next(names for names in shapes if names != few)
    few_file, many_file = layout.directories[indexes[0]].first, layout.directories[shapes[many][0]].first
    number = sum(counts[index] for index in indexes)
    return Refused(
        "PARTITION_COLUMNS_DIFFER",
        files=counted(number, "file"),
        file=few_file,
        columns=listed(few),
        other=many_file,
        other_columns=listed(many),
    )
