"""Tests of `scripts/wording.py`, which counts phrases that make sentences hard to follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import wording


@pytest.mark.parametrize(
    ("line", "phrases"),
    [
        ("Return the first version that contains the row.", []),
        ("if value is None or not values:", []),
        ("The run " + "goes on.", ["goes on"]),
        ("def test_run_" + "goes_on_after_a_crash() -> None:", ["goes on"]),
        ("# No" + "body knows what" + " the table " + "holds", ["Nobody", "what the"]),
    ],
)
def test_hits_lists_phrases_of_text_and_identifiers(line: str, phrases: list[str]) -> None:
    assert [phrase for phrase, _ in wording.hits(line)] == phrases


@pytest.mark.parametrize("path", sorted(wording.FINISHED))
def test_finished_path_has_files_and_stays_below_its_limit(path: str) -> None:
    measured, found = wording.rate(path)
    assert wording.files(path)
    assert measured <= wording.FINISHED[path], "\n".join(found)


def test_check_fails_for_path_above_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("The run " + "goes on.\n")
    monkeypatch.setattr(wording, "ROOT", tmp_path)
    monkeypatch.setattr(wording, "files", lambda path: [page])
    monkeypatch.setattr(wording, "FINISHED", {"page.md": wording.PAGES})
    assert wording.main([]) == 1
    assert "page.md:1: 'goes on': write continue, resume" in capsys.readouterr().err


def test_check_fails_for_path_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "FINISHED", {"docs/missing.md": wording.PAGES})
    assert wording.main([]) == 1
