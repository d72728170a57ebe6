"""Draw the phases of a pipeline target from `model/phases.py`; `make render` writes the files."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tableferry.pipelines.model.phases import ACTIONS, PHASES, Phase

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "pipeline-phases.svg"
PAGE = ROOT / "docs" / "concepts" / "pipelines.md"
BEGIN, END = "<!-- Generated from model/phases.py by make render -->", "<!-- End of the generated part -->"

_WIDTH, _HEIGHT, _STEP, _LEFT, _TOP = 220, 44, 76, 235, 20
# `refused` can come from and lead to each phase, so the picture leaves it out.
_ORDER: tuple[Phase, ...] = (
    "plain", "later", "new", "copying", "differs", "waiting", "ready", "complete", "finished",
)  # fmt: skip
_STYLE = (
    'text { font: 14px "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1f2533; }'
    " text { text-anchor: middle; }"
    " .box { fill: #fff; stroke: #3f51b5; stroke-width: 1.5; }"
    " .line { stroke: #5b6478; stroke-width: 1.5; fill: none; marker-end: url(#tip); }"
)


def picture() -> str:
    """Return the phases as an SVG: one below the other, with an arrow to each phase that can be next."""
    height = _TOP * 2 + _STEP * (len(_ORDER) - 1) + _HEIGHT
    tip = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#5b6478"/></marker></defs>'
    )
    title = "Phases of a target, and the phases that can follow each"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 690 {height}" role="img" '
        f'aria-label="{title}">',
        f"<title>{title}</title>",
        tip,
        f"<style>{_STYLE}</style>",
        f'<rect width="690" height="{height}" rx="10" fill="#f7f8fc"/>',
        *(_arrow(phase, after) for phase in _ORDER for after in PHASES[phase].next if after != phase),
    ]
    for phase in _ORDER:
        y = _y(phase)
        parts += [
            f'<rect class="box" x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
            f'<text x="{_LEFT + _WIDTH / 2}" y="{y + 27}">{escape(PHASES[phase].label)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _y(phase: Phase) -> int:
    return _TOP + _STEP * _ORDER.index(phase)


def _arrow(before: Phase, after: Phase) -> str:
    """Return an arrow: straight to the next box, a curve on the right down, or a curve on the left up."""
    start, stop = _ORDER.index(before), _ORDER.index(after)
    if stop == start + 1:
        x = _LEFT + _WIDTH / 2
        return f'<path class="line" d="M{x} {_y(before) + _HEIGHT}V{_y(after) - 2}"/>'
    side = _LEFT + _WIDTH if stop > start else _LEFT
    # Longer arrows bend further, and leave and reach their boxes at different heights.
    bend = 34 + 26 * (abs(stop - start) - 1)
    across = side + bend if stop > start else side - bend
    y1, y2 = _y(before) + 26 + 2 * stop, _y(after) + 6 + 3 * start
    end = side + 2 if stop > start else side - 2
    return f'<path class="line" d="M{side} {y1}C{across} {y1} {across} {y2} {end} {y2}"/>'


def tables() -> str:
    """Return the phases of a target and the actions of a flow as Markdown tables."""
    rows = [
        f"| {facts.label} | {facts.condition} | {', '.join(PHASES[after].label for after in facts.next)} |"
        for facts in PHASES.values()
    ]
    actions = [f"| `{action}` | {meaning} |" for action, meaning in ACTIONS.items()]
    return "\n".join(
        [
            "| phase | a target is in it if | next |",
            "|---|---|---|",
            *rows,
            "",
            "Within a target, a run does one of five things with each flow:",
            "",
            "| action | meaning |",
            "|---|---|",
            *actions,
        ]
    )


def page(text: str) -> str:
    """Return the page with the tables between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def write() -> None:
    """Write the picture and the tables of the page."""
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
