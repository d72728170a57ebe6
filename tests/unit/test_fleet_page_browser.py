"""Opens the page as readers do; the pictures stay in the folder that is printed."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.unit.fleets import huge_figures, small_figures

from tableferry.errors import Refused
from tableferry.fleet.jobs.findings import PauseFinding, Preflight
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.reports.page import page
from tableferry.fleet.reports.preflight import preflight_page
from tableferry.spark.tables import TableName

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# In CI a missing browser fails.
pytestmark = pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="there is no Chromium")

WIDTHS = (390, 768, 1280)
PAGES = ("small", "huge", "preflight")

# Measures the page of each frame, and writes the result into the DOM.
MEASURE = """
const measure = frame => {
  const page = frame.document.documentElement;
  const inside = each => !each.closest('thead, svg, wbr');
  const wide = [...page.querySelectorAll('body *')].filter(inside)
    .filter(each => each.getBoundingClientRect().right > page.clientWidth + 0.5).map(each => each.outerHTML);
  const asked = frame.performance.getEntriesByType('resource').map(each => each.name);
  const rows = page.querySelectorAll('tbody tr').length;
  return {client: page.clientWidth, scroll: page.scrollWidth, wide, asked, rows};
}
onload = () => { found.textContent = JSON.stringify(Array.from(frames, measure)) }
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fleet_page")
    (made / "small.html").write_text(page(small_figures()))
    (made / "huge.html").write_text(page(huge_figures()))
    (made / "preflight.html").write_text(preflight_page(some_preflights()))
    print(f"pictures of the page: {made}")
    return made


def some_preflights() -> list[Preflight]:
    """Return tables with long names: eligible, rewritten, and with blockers."""
    tables = [TableName(("spark_catalog", "s" * 40, f"daily_inventory_snapshots_{n}")) for n in range(30)]
    stopped = PauseFinding(PauseReason.NAME_TAKEN, Refused("MIGRATION_NAMES_TAKEN", tables="x" * 300))
    sizes = {"files": 99_999, "bytes": 10**15, "partitions": 9_999}
    return [
        Preflight(
            table,
            TargetFormat.ICEBERG,
            (stopped,) if number % 3 == 0 else (),
            ("Its readers need the new name.",),
            "parquet" if number % 2 else "orc",
            blocked_seconds=9_999.0,
            rewritten=number % 7 == 1,
            rewrite_seconds=99_999.0,
            **(sizes if number % 5 else {}),
        )
        for number, table in enumerate(tables)
    ]


def test_pages_fit_the_screen_and_load_nothing(pictures: Path) -> None:
    # A headless window is never narrower than 500 pixels: a frame is.
    shown = list(product(PAGES, WIDTHS))
    frames = "".join(
        f"<iframe src='{name}.html' style='width:{width}px;height:3000px;border:0'></iframe>"
        for name, width in shown
    )
    all_of_them, picture = pictures / "frames.html", pictures / "frames.png"
    all_of_them.write_text(
        f"<!doctype html><body style='margin:0;white-space:nowrap'>{frames}"
        f"<p id='found'></p><script>{MEASURE}</script>"
    )
    size = f"--window-size={len(PAGES) * sum(WIDTHS) + 50},3000"
    dom = browse(all_of_them, "--dump-dom", f"--screenshot={picture}", size)
    (text,) = re.findall(r'<p id="found">(.*?)</p>', dom)
    for measured, (name, width) in zip(json.loads(html.unescape(text)), shown, strict=True):
        assert measured.pop("rows") > 20, name
        assert measured == {"client": width, "scroll": width, "wide": [], "asked": []}, name
    assert picture.stat().st_size > 40_000


SEARCH = """
onload = () => {
  const page = frames[0].document;
  const box = page.querySelector('#search input');
  const shown = () => [...page.querySelectorAll('tbody tr')].filter(row => row.checkVisibility()).length;
  const all = shown();
  box.value = 'CLAIM_LAPSED or nothing';
  box.dispatchEvent(new Event('input'));
  const none = shown();
  box.value = ' WRITTEN_late ';
  box.dispatchEvent(new Event('input'));
  const rows = [...page.querySelectorAll('tbody tr')].filter(row => row.checkVisibility());
  const found_rows = rows.map(row => row.textContent);
  const summary = page.querySelector('#search output').textContent;
  box.value = '';
  box.dispatchEvent(new Event('input'));
  const seen = box.checkVisibility();
  found.textContent = JSON.stringify({none, found_rows, summary, back: shown() >= all, seen});
}
"""


def test_search_filters_all_lists(pictures: Path) -> None:
    figures = small_figures()
    reason = figures.paused_jobs[0].reason
    word = reason.partition(":")[0]
    searched = pictures / "searched.html"
    searched.write_text(
        f"<!doctype html><iframe src='small.html' style='width:1200px;height:3000px'></iframe>"
        f"<p id='found'></p><script>{SEARCH.replace('WRITTEN_late', word.title())}</script>"
    )
    (text,) = re.findall(r'<p id="found">(.*?)</p>', browse(searched, "--dump-dom"))
    found = json.loads(html.unescape(text))
    assert (found["none"], found["back"], found["seen"]) == (0, True, True)
    assert found["found_rows"]
    assert all(word.lower() in row.lower() for row in found["found_rows"])
    assert found["summary"].startswith(f"{len(found['found_rows'])} of ")


def test_page_prints_on_at_most_six_sheets(pictures: Path) -> None:
    paper = pictures / "small.pdf"
    browse(pictures / "small.html", f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    pages = re.findall(rb"/Type\s*/Page\b", paper.read_bytes())
    assert 1 <= len(pages) <= 6


def browse(file: Path, *arguments: str) -> str:
    """Open a file in Chromium, which reaches no other machine; a word in its console is an error."""
    assert CHROMIUM is not None, "Chromium isn't installed: apt-get install chromium"
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                CHROMIUM,
                "--headless",
                # Root has no sandbox.
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--enable-logging=stderr",
                "--allow-file-access-from-files",
                f"--user-data-dir={profile}",
                *arguments,
                file.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout
