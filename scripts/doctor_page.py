"""Write the checks of `tableferry doctor` into docs/operations/on-databricks.md; `make render` runs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tableferry.doctor.check import Check, Place
from tableferry.doctor.check_list import CHECKS

PAGE = Path(__file__).parents[1] / "docs" / "operations" / "on-databricks.md"
BEGIN, END = (
    "<!-- Generated from src/tableferry/doctor by make render -->",
    "<!-- End of the generated part -->",
)

_TITLES = {
    Place.PIPELINE: "Pipelines",
    Place.TABLES: "Tables",
    Place.STATE: "State",
    Place.WORKSPACE: "Workspace",
}


def tables() -> str:
    """Return a Markdown table of the checks of each part of a workspace."""
    parts = []
    for place, title in _TITLES.items():
        checks = [check for check in CHECKS if check.place is place]
        parts += [f"### {title}", "", *_table(checks), ""]
    return "\n".join(parts).rstrip()


def _table(checks: Iterable[Check]) -> Iterable[str]:
    yield "| check | what it proves | made | routes | pages |"
    yield "|---|---|---|---|---|"
    for check in checks:
        routes = ", ".join(check.routes)
        yield f"| `{check.name}` | {check.proves} | {check.runs} | {routes} | {_pages(check)} |"


def _pages(check: Check) -> str:
    pages = (f"[{source.title}]({source.url})" if source.url else source.title for source in check.sources)
    return ", ".join(pages) or "no page"


def page(text: str) -> str:
    """Return the page with the tables between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def write() -> None:
    """Write the tables of the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
