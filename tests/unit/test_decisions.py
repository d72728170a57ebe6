"""Each page in docs/decisions is short, has a numbered title, names existing files, and is in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(DECISIONS.glob("[0-9]*.md"))

SOURCES = [
    path.relative_to(ROOT)
    for pattern in (
        "*.yml",
        *(f"{folder}/**/*.*" for folder in ("src", "tests", "scripts", "benchmarks", "template", "native")),
    )
    for path in ROOT.glob(pattern)
]
KNOWN = {str(path) for path in SOURCES} | {f"{folder}/" for path in SOURCES for folder in path.parents}

SHORTEST, LONGEST = 60, 200
LONGEST_REPLACED = 60

TITLE = re.compile(r"# (\d+)\. (\S.+)")
# The first paragraph of a decision that no longer applies.
REPLACED = re.compile(r"(Replaced|Revoked) by \[decision \d+\]\(\d{4}-[a-z0-9-]+\.md\)")
# A Python file, a catalogue or a folder, by its path or the end of its path.
FILE = re.compile(r"`(\w[\w/]*(?:\.py|\.yml|/))`")
# A row of the index: number, title with link, route.
ROW = re.compile(r"\| (\d+) \| \[(.+)\]\((\S+\.md)\) \| (pipelines|convert|fleet|all) \|")


def count_words(text: str) -> int:
    """Return the number of words, without the separators of tables and lists."""
    return sum(any(character.isalnum() for character in word) for word in text.split())


def find_problems(name: str, text: str) -> list[str]:
    """Return the rules of decisions that a page breaks."""
    heading, _, body = text.partition("\n")
    title = TITLE.fullmatch(heading)
    if title is None or int(title[1]) != int(name[:4]):
        return [f"{name}: the first line isn't '# {int(name[:4])}. …'"]
    words = count_words(body)
    if REPLACED.match(body.lstrip()):
        return (
            [f"{name}: {words} words; a replaced decision has at most 60"] if words > LONGEST_REPLACED else []
        )
    if not SHORTEST <= words <= LONGEST:
        return [f"{name}: {words} words; a decision has 60 to 200"]
    return []


def find_missing_files(text: str) -> list[str]:
    """Return the files and folders that a page names and that don't exist."""
    return [name for name in FILE.findall(text) if not any(is_named(path, name) for path in KNOWN)]


def is_named(path: str, name: str) -> bool:
    return f"/{path}".endswith(f"/{name}")


def list_rows(pages: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return the number, title and file that the index must list for each page."""
    titles = [(name, TITLE.match(text)) for name, text in sorted(pages.items())]
    return [(title[1], title[2], name) for name, title in titles if title is not None]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_decision_has_title_and_60_to_200_words(page: Path) -> None:
    assert find_problems(page.name, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_decision_names_exist(page: Path) -> None:
    assert find_missing_files(page.read_text(encoding="utf-8")) == []


def test_file_that_does_not_exist_is_found() -> None:
    text = "`pipelines/update.py`, `update.py`, `pipelines/cdc/`, `pipelines/run.py`, `pipelines/show/`"
    assert find_missing_files(text) == ["pipelines/run.py", "pipelines/show/"]


def test_index_lists_each_decision_with_its_route() -> None:
    rows = ROW.findall((DECISIONS / "index.md").read_text(encoding="utf-8"))
    pages = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    assert [row[:3] for row in rows] == list_rows(pages)


def page_of(words: int, first: str = "") -> str:
    return "# 7. Files are listed once\n\n" + first + " word" * words


REPLACED_LINE = "Replaced by [decision 8](0008-files-are-listed-twice.md).\n\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (page_of(59), "59 words"),
        (page_of(201), "201 words"),
        (page_of(0) + "\n| a | b |\n|---|---|\n| - | - |\n", "2 words"),
        (page_of(57, REPLACED_LINE), "61 words; a replaced decision"),
        (page_of(100).replace("# 7.", "# 8."), "the first line isn't '# 7. …'"),
        (page_of(100).replace("# 7.", "#"), "the first line isn't '# 7. …'"),
    ],
)
def test_page_that_breaks_a_rule_is_found(text: str, problem: str) -> None:
    (found,) = find_problems("0007-files-are-listed-once.md", text)
    assert problem in found


@pytest.mark.parametrize("text", [page_of(60), page_of(200), page_of(10, REPLACED_LINE)])
def test_page_within_the_limits_is_accepted(text: str) -> None:
    assert find_problems("0007-files-are-listed-once.md", text) == []


def test_index_row_without_a_route_is_not_recognized() -> None:
    row = "| 7 | [Files are listed once](0007-files-are-listed-once.md) | {} |"
    assert ROW.fullmatch(row.format("fleet"))
    assert not ROW.fullmatch(row.format(""))
