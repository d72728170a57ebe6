"""Render a verdict as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tableferry.amounts import counted, joined
from tableferry.verify.verdict import PARTITIONS_SHOWN, KeyFindings, SchemaDifferences, Verdict

_WIDEST = 48
_LEAD = 12


def render(verdict: Verdict) -> str:
    """Return a verdict as text: a sentence, the counts, and one table for each kind of difference."""
    sections = [_sentence(verdict)]
    if verdict.differ_everywhere:
        sections.append(f"No value is on both sides in: {', '.join(verdict.differ_everywhere)}")
    sections.append(_counts(verdict))
    if verdict.schema != SchemaDifferences():
        sections.append(_schema(verdict))
    if verdict.partition_differences:
        sections.append(_partitions(verdict))
    if verdict.keys:
        sections.append(_rows(verdict, verdict.keys))
    if verdict.excludable:
        sections.append(f"Columns that could be excluded: {', '.join(verdict.excludable)}")
    return "\n\n".join(sections)


def _sentence(verdict: Verdict) -> str:
    both = f"{verdict.source_label} and {verdict.target_label}"
    but = f" but the excluded {joined(verdict.excluded)}" if verdict.excluded else ""
    if verdict.matches:
        changed = len(verdict.schema.types)
        types = f"; {counted(changed, 'column')} changed type and kept every value" if changed else ""
        return f"{both} match: {counted(verdict.source.rows, 'row')}, the same in every column{but}{types}."
    reasons = []
    if verdict.source.rows != verdict.target.rows:
        reasons.append(f"{counted(verdict.source.rows, 'row')} against {verdict.target.rows:,}")
    elif not verdict.rows_match:
        reasons.append(f"both have {counted(verdict.source.rows, 'row')}, but not the same ones")
    for label, names in (
        (verdict.source_label, verdict.schema.source_only),
        (verdict.target_label, verdict.schema.target_only),
    ):
        if names:
            reasons.append(f"only {label} has {joined(names)}")
    if verdict.schema.incomparable:
        reasons.append(f"{joined(verdict.schema.incomparable)} can't be compared")
    if verdict.rows_match:
        reasons.append("every other column holds the same")
    return f"{both} don't match: {'; '.join(reasons)}."


def _counts(verdict: Verdict) -> str:
    return _table(
        ("", "rows", "hash"),
        [
            (verdict.source_label, f"{verdict.source.rows:,}", verdict.source.hash),
            (verdict.target_label, f"{verdict.target.rows:,}", verdict.target.hash),
        ],
        right={1},
    )


def _schema(verdict: Verdict) -> str:
    schema = verdict.schema
    rows = [(name, "present", "missing", "not compared") for name in schema.source_only]
    rows += [(name, "missing", "present", "not compared") for name in schema.target_only]
    rows += [
        (
            difference.column,
            difference.source,
            difference.target,
            f"as {difference.compared_as}" if difference.compared_as else "not compared",
        )
        for difference in schema.types
    ]
    return _table(("column", verdict.source_label, verdict.target_label, "compared"), rows)


def _partitions(verdict: Verdict) -> str:
    shown = verdict.partition_differences[:PARTITIONS_SHOWN]
    title = f"{verdict.differing_partitions:,} of {counted(verdict.partitions, 'partition')} differ"
    if len(shown) < verdict.differing_partitions:
        title += f"; {len(shown)} of them:"
    else:
        title += ":"
    rows = [
        (
            *map(_value, difference.values),
            f"{difference.source.rows:,}",
            f"{difference.target.rows:,}",
            f"{difference.target.rows - difference.source.rows:+,}"
            if difference.source.rows != difference.target.rows
            else "other values",
        )
        for difference in shown
    ]
    width = len(verdict.partition_columns)
    headings = (*verdict.partition_columns, verdict.source_label, verdict.target_label, "difference")
    return f"{title}\n{_table(headings, rows, right={width, width + 1, width + 2})}"


def _rows(verdict: Verdict, keys: KeyFindings) -> str:
    names = (verdict.source_label, verdict.target_label)
    total = keys.source_only + keys.target_only + keys.different
    lines = [
        f"By {joined(keys.columns)}, {counted(total, 'key')} differ: {keys.source_only:,} only in {names[0]}"
        f", {keys.target_only:,} only in {names[1]}, {keys.different:,} with other rows."
    ]
    for label, count in zip(names, (keys.duplicated_source, keys.duplicated_target), strict=True):
        if count:
            lines.append(
                f"The keys aren't unique: {label} has {counted(count, 'key')} more than once; rows most "
                "alike stand side by side."
            )
    rows: list[tuple[str, ...]] = []
    for row in keys.rows:
        key = tuple(map(_value, row.key))
        if row.status != "different":
            label = names[0] if row.status == "source-only" else names[1]
            rows.append((*key, f"(only in {label})", "", ""))
        for at, value in enumerate(row.values):
            pair = _excerpts(value.source, value.target)
            rows.append((*(key if at == 0 else ("",) * len(key)), value.column, *pair))
    lines.append(_table((*keys.columns, "column", *names), rows))
    return "\n".join(lines)


def _value(value: str | None) -> str:
    """Return a value so that null, the text NULL, empty text and leading or trailing spaces are distinct."""
    if value is None:
        return "NULL"
    plain = value.isprintable() and value == value.strip() and value not in ("", "NULL")
    shown = value if plain else repr(value)
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"


def _excerpts(source: str | None, target: str | None) -> tuple[str, str]:
    """Return two values; after a long common prefix, they start shortly before their first difference."""
    if source is None or target is None:
        return _value(source), _value(target)
    same = next(
        (at for at, (left, right) in enumerate(zip(source, target, strict=False)) if left != right),
        min(len(source), len(target)),
    )
    if same < _WIDEST - _LEAD:
        return _value(source), _value(target)
    return _value(f"…{source[same - _LEAD :]}"), _value(f"…{target[same - _LEAD :]}")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Return rows aligned under their headings, with a line of dashes between them."""
    numbers = set(right)
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if at in numbers else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(headings), line(["-" * width for width in widths]), *map(line, rows)])
