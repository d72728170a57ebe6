"""Text and data of reports on hand-over points, proofs and undone take-overs."""

from __future__ import annotations

import json
from io import StringIO

from rich.console import Console

from tableferry.pipelines import reports
from tableferry.pipelines.handover.proofs import Proof
from tableferry.pipelines.model.flows import Project
from tableferry.pipelines.model.plan import Plan
from tableferry.pipelines.reports import FinishReport, UndoReport, VerifyReport
from tableferry.spark.tables import TableName
from tableferry.verify.verdict import Aggregate, KeyFindings, RowDifference, Verdict

OUT = TableName.parse("silver.out")
SAME = Aggregate(5, (1, 2))
EQUAL = Verdict("silver.old@3", "silver.out", SAME, SAME)


def keys(source_only: int, target_only: int) -> KeyFindings:
    rows = (RowDifference(("7",), "target-only"),)
    return KeyFindings(("id",), source_only, target_only, 0, 0, 0, rows)


def printed(print_: object, *arguments: object) -> str:
    out = StringIO()
    print_(Console(file=out, width=200), *arguments)  # type: ignore[operator]
    return out.getvalue()


def test_report_of_proved_target_names_rows_and_their_origin() -> None:
    report = VerifyReport(
        "p",
        (
            Proof(OUT, EQUAL, rows=5),
            Proof(OUT, EQUAL, source_commits=2, rows=5),
            Proof(OUT, Verdict("silver.out", "bronze.src@9", SAME, SAME), rows=5),
        ),
    )
    assert report.ok
    assert printed(reports.print_verify, report).splitlines() == [
        "silver.out: proved: it contains exactly the 5 rows of silver.old@3",
        "silver.out: proved: it contains exactly the 5 rows of silver.old@3 and 2 later commits of the "
        "sources",
        "silver.out: proved: it contains exactly the 5 rows made of bronze.src@9",
    ]
    assert printed(reports.print_verify, VerifyReport("p", ())) == (
        "Nothing to compare: no target has a migration.\n"
    )
    finished = printed(reports.print_finish, FinishReport((OUT,), (), report.proofs[:1]))
    assert finished.startswith("silver.out: proved: it contains exactly the 5 rows of silver.old@3\n")


def test_report_of_unproved_target_lists_rows_or_reason() -> None:
    differs = Verdict("silver.old@3", "silver.out", SAME, Aggregate(6, (1, 3)), keys=keys(0, 1))
    report = VerifyReport("p", (Proof(OUT, differs, rows=6), Proof(OUT, why_not="it's gone: restore it")))
    assert not report.ok
    text = printed(reports.print_verify, report)
    assert text.startswith("silver.out: DIFFERS from silver.old@3:\nsilver.old@3 and silver.out don't match")
    assert "7   (only in silver.out)" in text
    assert text.endswith("silver.out: can't be proved: it's gone: restore it\n")
    data = json.loads(json.dumps(reports.verify_data(report)))
    assert [(target["proved"], target["whyNot"]) for target in data["targets"]] == [
        (False, None),
        (False, "it's gone: restore it"),
    ]


def test_report_of_assumed_hand_over_has_one_of_four_results() -> None:
    made = "bronze.src@9"
    loses = Verdict("silver.old@3", made, SAME, Aggregate(6, (1, 3)), keys=keys(0, 1))
    more = Verdict("silver.old@3", made, Aggregate(6, (1, 3)), SAME, keys=keys(1, 0))
    starts = [
        Proof(OUT, Verdict("silver.old@3", made, SAME, SAME), rows=5),
        Proof(OUT, loses, rows=6),
        Proof(OUT, more, rows=5),
        Proof(OUT, why_not="v_out skips commits"),
    ]
    assert [start.only_legacy_has_more for start in starts] == [False, False, True, False]
    plan = Plan(Project("/p", "p", ()), "p", ())
    text = printed(reports.print_plan, plan, None, starts)
    for sentence in (
        "point of silver.out is proved: silver.old@3 contains exactly the 5 rows made of bronze.src@9",
        "point of silver.out is WRONG: silver.old@3 lacks rows of bronze.src@9, which no flow will write",
        "point of silver.out loses nothing: silver.old@3 contains all 5 rows made of bronze.src@9. It also",
        "point of silver.out can't be proved: v_out skips commits",
    ):
        assert f"Check: the hand-over {sentence}" in text
    assert [start["proved"] for start in reports.plan_data(plan, None, starts)["starts"]] == [
        True, False, False, False,
    ]  # fmt: skip


def test_undo_report_names_target() -> None:
    text = printed(reports.print_undo, UndoReport((OUT,)))
    assert text.startswith(
        "silver.out: the take-over is undone; the old stream resumes where the flows stopped\n"
    )
    assert reports.undo_data(UndoReport((OUT,))) == {"undone": ["silver.out"]}
