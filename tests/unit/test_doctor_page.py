"""The page about Databricks states the checks of the code."""

from __future__ import annotations

from scripts import doctor_page

from tableferry.doctor.check_list import CHECKS


def test_page_shows_the_checks_of_the_code() -> None:
    text = doctor_page.PAGE.read_text(encoding="utf-8")
    assert doctor_page.tables() in text
    assert doctor_page.page(text) == text


def test_each_assumption_about_a_workspace_is_on_the_page() -> None:
    text = doctor_page.tables()
    for check in CHECKS:
        elsewhere = check.place in ("this machine", "fleet")
        assert (f"| `{check.name}` |" in text) is not elsewhere, check.name
