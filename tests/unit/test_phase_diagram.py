"""The generated picture and tables of the phases of a target."""

from __future__ import annotations

from scripts import phase_diagram

from tableferry.pipelines.model.phases import OVER, PHASES


def test_picture_and_page_show_the_tables_of_the_code() -> None:
    assert phase_diagram.PICTURE.read_text(encoding="utf-8") == phase_diagram.picture()
    text = phase_diagram.PAGE.read_text(encoding="utf-8")
    assert phase_diagram.tables() in text
    assert phase_diagram.page(text) == text


def test_each_phase_is_reached_from_another_and_only_finished_is_final() -> None:
    reached = {after for facts in PHASES.values() for after in facts.next}
    assert reached == PHASES.keys() - {"refused"}
    assert {phase for phase, facts in PHASES.items() if not facts.next} == {"finished"}
    assert PHASES.keys() >= OVER
