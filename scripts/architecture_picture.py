"""Draw the picture of a workspace: for each route, its jobs, and the objects that they read and write.

`python -m scripts.architecture_picture` writes it. It is narrow, so that a phone shows it in full width.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "architecture.svg"
TITLE = "The jobs of each route in a workspace, with the objects that they read and write"

_WIDTH, _BOX, _ROW, _LINE, _TOP = 400, 116, 10, 15, 26
_LEFT, _MIDDLE, _RIGHT = 6, 142, 278

_STYLE = (
    'text { font: 12px "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1f2533; }'
    " text { text-anchor: middle; }"
    " .lane { font-size: 13px; font-weight: bold; text-anchor: start; }"
    " .small { font-size: 11px; fill: #5b6478; }"
    " .job { fill: #eef1fb; stroke: #3f51b5; stroke-width: 1.5; }"
    " .old { fill: #fff4e0; stroke: #c77700; stroke-width: 1.5; }"
    " .new { fill: #e3f4e8; stroke: #2e7d47; stroke-width: 1.5; }"
    " .own { fill: #fff; stroke: #5b6478; stroke-width: 1.5; }"
    " .line { stroke: #5b6478; stroke-width: 1.5; fill: none; marker-end: url(#tip); }"
    " .both { marker-start: url(#tip); }"
)


@dataclass(frozen=True)
class Box:
    """An object that jobs read or write.

    Attributes:
        lines: The lines of its text.
        kind: ``old`` exists before the migration, ``new`` is created by it, ``own`` is Tableferry's.
        both: Whether jobs read and write it.
    """

    lines: tuple[str, ...]
    kind: Literal["old", "new", "own"]
    both: bool = False

    @property
    def height(self) -> int:
        """Its height in pixels."""
        return 14 + _LINE * len(self.lines)


@dataclass(frozen=True)
class Lane:
    """A route: its jobs, with the objects on their left (read) and right (written)."""

    title: str
    jobs: tuple[str, ...]
    left: tuple[Box, ...]
    right: tuple[Box, ...]

    @property
    def height(self) -> int:
        """The height of its highest column in pixels."""
        sides = [sum(box.height + _ROW for box in side) - _ROW for side in (self.left, self.right)]
        return max(*sides, 14 + _LINE * len(self.jobs))


LANES = (
    Lane(
        "Pipeline migration",
        ("job migrate:", "prepare", "pipeline update", "compare", "status"),
        (
            Box(("sources",), "old"),
            Box(("legacy tables,", "only read"), "old"),
            Box(("specs in", "workspace files"), "own"),
        ),
        (
            Box(("streaming tables",), "new", both=True),
            Box(("clones for", "SCD targets"), "new", both=True),
            Box(("state in", "a volume"), "own", both=True),
        ),
    ),
    Lane(
        "Fleet migration",
        ("fleet jobs:", "preprocess", "communicate", "migrate", "shadow", "revert"),
        (
            Box(("Hive tables,", "grants, tags"), "old", both=True),
            Box(("lineage",), "old"),
            Box(("fleet.yml in", "workspace files"), "own"),
        ),
        (
            Box(("Iceberg or", "Delta tables"), "new", both=True),
            Box(("queue: Delta", "or PostgreSQL"), "own", both=True),
            Box(("e-mails",), "own"),
        ),
    ),
    Lane(
        "Conversion",
        ("job convert:", "plan, convert", "job convert_sync"),
        (Box(("Parquet files,", "only read"), "old"),),
        (Box(("_delta_log",), "new"), Box(("catalog entry",), "old", both=True)),
    ),
)


def picture() -> str:
    """Return the picture as SVG: one lane below the other, and a legend."""
    parts, y = [], 8
    for lane in LANES:
        parts.append(f'<text class="lane" x="{_LEFT}" y="{y + 16}">{escape(lane.title)}</text>')
        y += _TOP
        parts += _lane(lane, y)
        y += lane.height + 22
    parts += _legend(y)
    height = y + 62
    tip = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" markerHeight="6" '
        'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#5b6478"/></marker></defs>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{TITLE}">',
            f"<title>{TITLE}</title>",
            tip,
            f"<style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{height}" rx="10" fill="#f7f8fc"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _lane(lane: Lane, top: int) -> list[str]:
    parts = _box("job", _MIDDLE, top, lane.height, lane.jobs)
    for side, x in ((lane.left, _LEFT), (lane.right, _RIGHT)):
        used = sum(box.height for box in side)
        gap = (lane.height - used) // max(len(side) - 1, 1) if len(side) > 1 else 0
        y = top if len(side) > 1 else top + (lane.height - used) // 2
        for box in side:
            parts += _box(box.kind, x, y, box.height, box.lines)
            middle = y + box.height / 2
            start, end = (x + _BOX + 1, _MIDDLE - 2) if x == _LEFT else (_MIDDLE + _BOX + 1, x - 2)
            both = " both" if box.both else ""
            parts.append(f'<path class="line{both}" d="M{start} {middle}H{end}"/>')
            y += box.height + gap
    return parts


def _box(kind: str, x: int, y: int, height: int, lines: tuple[str, ...]) -> list[str]:
    first = y + (height - _LINE * len(lines)) / 2 + 11
    texts = [
        f'<text x="{x + _BOX / 2}" y="{first + _LINE * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    return [
        f'<rect class="{kind}" x="{x}" y="{y}" width="{_BOX}" height="{height}" rx="6"/>',
        *texts,
    ]


def _legend(y: int) -> list[str]:
    entries = (
        ("old", "exists before", _LEFT, y),
        ("new", "created for you", _MIDDLE, y),
        ("own", "for the migration", _RIGHT, y),
    )
    parts = []
    for kind, text, x, top in entries:
        parts += [
            f'<rect class="{kind}" x="{x}" y="{top}" width="16" height="14" rx="3"/>',
            f'<text class="small" style="text-anchor:start" x="{x + 22}" y="{top + 11}">{text}</text>',
        ]
    note = "An arrow with two tips: jobs read and write the object."
    parts.append(f'<text class="small" style="text-anchor:start" x="{_LEFT}" y="{y + 40}">{note}</text>')
    return parts


def write() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    write()
