from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleets import NOW, Fleet, huge_figures, opened, small_figures

from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports import charts
from tableferry.fleet.reports.charts import burn_down, over_time
from tableferry.fleet.reports.figure_types import Day, Figures
from tableferry.fleet.reports.page import page
from tableferry.fleet.reports.status import read_status
from tableferry.spark.tables import TableName

VOID = {"input", "meta", "link", "wbr", "br"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    queue_store = opened(tmp_path)
    yield queue_store
    queue_store.close()


class Page(HTMLParser):
    """The elements and words of a page; an element that isn't closed, or closed twice, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, Mapping[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


@pytest.mark.parametrize("name", ["none", "one", "some", "huge"])
def test_page_closes_its_elements_and_loads_nothing(name: str, store: Store) -> None:
    parsed = Page(page(sized(name, store)))
    tags = {tag for tag, _ in parsed.elements}
    assert {"img", "iframe", "object", "embed"} & tags == set()
    asked = [
        value
        for _, attributes in parsed.elements
        for key, value in attributes.items()
        if key in {"src", "href", "srcset", "action", "data", "poster"}
    ]
    assert asked == ["data:,"]
    assert "url(" not in parsed.text
    assert "@import" not in parsed.text


def test_page_allows_only_its_script() -> None:
    text = page(small_figures())
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';" in html.unescape(
        text
    )


def sized(name: str, store: Store) -> Figures:
    match name:
        case "none":
            return read_status(store, NOW)
        case "one":
            Fleet(store).add("only", at=NOW)
            return read_status(store, NOW)
        case "some":
            return small_figures()
        case _:
            return huge_figures()


def test_page_of_huge_fleet_is_small() -> None:
    assert len(page(huge_figures())) < 300_000


def test_tables_and_charts_have_accessible_names() -> None:
    parsed = Page(page(small_figures()))
    headers = [attributes for tag, attributes in parsed.elements if tag == "th"]
    assert headers
    assert all(attributes["scope"] in {"row", "col"} for attributes in headers)
    pictures = [attributes for tag, attributes in parsed.elements if tag == "svg"]
    ids = {attributes.get("id") for _, attributes in parsed.elements}
    assert len(pictures) == 2
    for picture in pictures:
        assert picture["role"] == "img"
        assert set(str(picture["aria-labelledby"]).split()) <= ids
    for section in (attributes for tag, attributes in parsed.elements if tag == "section"):
        assert section["aria-labelledby"] in ids


NASTY = st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
) | st.sampled_from(
    [
        "<script>alert(1)</script>",
        "a&b",
        '"><img src=x onerror=alert(1)>',
        "'",
        "</style>",
        "{{ 7*7 }}",
        "]]>",
    ]
)


@given(names=st.tuples(NASTY, NASTY), owner=NASTY, reason=NASTY)
def test_page_escapes_every_text(names: tuple[str, str], owner: str, reason: str) -> None:
    figures = small_figures()
    table = TableName(("spark_catalog", *names))
    odd = replace(
        figures,
        stuck=tuple(replace(entry, table=table, owners=(owner,), command=reason) for entry in figures.stuck),
        paused_jobs=tuple(
            replace(entry, table=table, reason=reason, owners=(owner,)) for entry in figures.paused_jobs
        ),
        owners=(replace(figures.owners[0], owner=owner), *figures.owners[1:]),
        pauses=tuple(replace(entry, reason=reason) for entry in figures.pauses),
    )
    plain, odd_page = Page(page(figures)), Page(page(odd))
    without_breaks = [tag for tag, _ in odd_page.elements if tag != "wbr"]
    assert without_breaks == [tag for tag, _ in plain.elements if tag != "wbr"]
    assert odd_page.text.count(str(table)) >= 2
    assert owner in odd_page.text
    assert reason in odd_page.text


def colours(css: str, media: str | None) -> dict[str, str]:
    """The page's colours on a light screen, or as another medium has them."""
    blocks = re.findall(r"(?:@media ([^{]+) \{\s*)?:root \{([^}]*)\}", css)
    (block,) = [body for head, body in blocks if (head or None) == media]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def contrast(first: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2.2 has it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(first), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("media", [None, "(prefers-color-scheme: dark)", "print"])
def test_text_contrasts_with_its_background(media: str | None) -> None:
    css = Path(charts.__file__).with_name("templates").joinpath("page.css").read_text()
    palette = colours(css, media)
    for ink in ("ink", "muted"):
        for paper in ("paper", "surface", "alarm-paper"):
            assert contrast(palette[ink], palette[paper]) >= 4.5, (ink, paper)
    assert contrast(palette["alarm"], palette["alarm-paper"]) >= 4.5
    for shape in ("completed", "probation", "migrating", "going_back", "reverted"):
        assert contrast(palette[shape], palette["surface"]) >= 3, shape


def test_chart_of_one_day_is_drawn() -> None:
    today = NOW.date()
    figures = replace(small_figures(), days=(Day(today, 1, 0, 0, 0, 0, 0, 0),))
    chart = over_time(figures)
    assert chart is not None
    assert [(shape.key, shape.path) for shape in chart.shapes] == [("new", "M0 0L1000 0L1000 1000L0 1000Z")]
    assert burn_down(figures) is not None
    assert over_time(replace(figures, days=())) is None


@pytest.mark.parametrize(("days", "marked"), [(2, 2), (3, 3), (4, 2), (5, 5), (9, 5)])
def test_chart_marks_days_evenly(days: int, marked: int) -> None:
    first = NOW.date()
    counts = tuple(Day(first + timedelta(days=number), 1, 0, 0, 0, 0, 0, 0) for number in range(days))
    chart = over_time(replace(small_figures(), days=counts))
    assert chart is not None
    assert [tick.at for tick in chart.across] == [100 * number / (marked - 1) for number in range(marked)]


@given(st.lists(st.lists(st.integers(0, 200_000), min_size=7, max_size=7), min_size=1, max_size=400))
def test_chart_stays_on_its_canvas(counts: list[list[int]]) -> None:
    first = NOW.date() - timedelta(days=len(counts) - 1)
    days = tuple(Day(first + timedelta(days=number), *row) for number, row in enumerate(counts))
    shown = replace(small_figures(), days=days)
    for chart in (over_time(shown), burn_down(shown)):
        assert chart is not None
        for shape in chart.shapes:
            numbers = [float(match) for match in re.findall(r"-?\d+(?:\.\d+)?", shape.path)]
            if shape.key not in {"forecast", "range"}:
                assert all(0 <= match <= 1000 for match in numbers)
        assert 2 <= len(chart.up) <= 6
        assert [tick.at for tick in chart.up] == sorted((tick.at for tick in chart.up), reverse=True)
        assert chart.up[-1].at == 0
        assert chart.across[0].at == 0
        assert chart.across[-1].at == 100
