from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.notifications.addresses import LeftOut, address, recipients_of
from tableferry.fleet.notifications.drafts import audience, draft, is_needed, level, with_date
from tableferry.fleet.notifications.emails import POLICY, build_email
from tableferry.fleet.notifications.notes import Note, notes_of, with_notes
from tableferry.fleet.notifications.texts import Words
from tableferry.fleet.queue.records import NotificationRecord
from tableferry.fleet.settings import MailSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANN, BOB, EVE = "ann@corp.example", "bob@corp.example", "eve@corp.example"


def job(task_id: int, **more: Any) -> Job:
    ready = {"state": State.READY, "desired_state": State.WRITES_BLOCKED, "to_be_processed": True}
    given = {"created_at": NOW, "last_updated_time": NOW, **ready, **more}
    return Job(task_id, "spark_catalog", "sales", f"t{task_id}", **given)


def on_probation(task_id: int, **more: Any) -> Job:
    state = State.WRITES_UNBLOCKED
    return job(
        task_id, state=state, desired_state=state, in_process=True, **{"probation_gap_days": 7, **more}
    )


def archived(task_id: int, **more: Any) -> Job:
    return job(task_id, state=State.HIVE_DROPPED, desired_state=State.HIVE_DROPPED, **more)


def drafted(
    *jobs: Job, covered: frozenset[tuple[int, str]] = frozenset(), domain: str = "", batch: int = 50
) -> tuple[list[NotificationRecord], list[LeftOut]]:
    return draft(jobs, covered, now=NOW, domain=domain, id_domain="corp.example", batch=batch)


def envelopes(*jobs: Job, **how: Any) -> list[tuple[int, tuple[int, ...], tuple[str, ...]]]:
    return [(each.level, each.task_ids, each.recipients) for each in drafted(*jobs, **how)[0]]


def test_owner_gets_one_notification_about_all_owned_tables() -> None:
    jobs = [job(1, tbl_owners=(ANN,)), job(2, tbl_owners=(BOB, ANN)), job(3, tbl_owners=(ANN,))]
    assert envelopes(*jobs) == [(1, (1, 2, 3), (ANN,)), (1, (2,), (BOB,))]


def test_readers_of_the_same_tables_share_notifications_in_batches() -> None:
    readers = tuple(f"u{number}@corp.example" for number in range(5))
    jobs = [job(1, downstream_users=readers), job(2, downstream_users=readers[:4])]
    assert envelopes(*jobs, batch=3) == [
        (1, (1,), readers[4:]),
        (1, (1, 2), readers[:3]),
        (1, (1, 2), readers[3:4]),
    ]


def test_owner_who_reads_the_table_gets_only_the_owners_notification() -> None:
    assert envelopes(job(1, tbl_owners=(ANN,), downstream_users=("ANN@Corp.Example", BOB))) == [
        (1, (1,), (ANN,)),
        (1, (1,), (BOB,)),
    ]


def test_each_level_has_separate_notifications_and_message_ids() -> None:
    jobs = [make(number, tbl_owners=(ANN,)) for number, make in enumerate((job, on_probation, archived))]
    assert envelopes(*jobs) == [(1, (0,), (ANN,)), (2, (1,), (ANN,)), (3, (2,), (ANN,))]
    ids = [each.message_id for drafts, _ in (drafted(*jobs), drafted(*jobs)) for each in drafts]
    assert len(set(ids)) == 6
    assert all(each.endswith("@corp.example>") for each in ids)


def test_recipient_covered_for_a_table_gets_no_second_notification_about_it() -> None:
    jobs = [job(1, tbl_owners=(ANN, BOB)), job(2, tbl_owners=(ANN,))]
    assert envelopes(*jobs, covered=frozenset({(1, ANN)})) == [(1, (1,), (BOB,)), (1, (2,), (ANN,))]


@pytest.mark.parametrize(
    ("make", "initial", "probation", "needed"),
    [
        (job, 0, 14, False),
        (job, 1, 0, True),
        (on_probation, 14, 0, False),
        (on_probation, 0, 1, True),
        (archived, 0, 0, False),
        (archived, 1, 0, True),
        (archived, 0, 1, True),
    ],
)
def test_step_without_days_has_no_notification(make: Any, initial: int, probation: int, needed: bool) -> None:
    due = make(1, initial_gap_days=initial, probation_gap_days=probation, tbl_owners=(ANN,))
    assert is_needed(due) is needed
    assert bool(envelopes(due)) is needed


def test_names_without_address_get_the_domain_or_are_left_out_with_the_reason() -> None:
    names = ("bob", "Data Team", "9b1b2c3d-1111-2222-3333-444455556666")
    assert envelopes(job(1, tbl_owners=names), domain="corp.example") == [(1, (1,), (BOB,))]
    _, left_out = drafted(job(1, tbl_owners=names), job(2, tbl_owners=names))
    assert [(person.recipient, len(person.tables)) for person in left_out] == [
        (name, 2) for name in sorted(names)
    ]
    assert "application" in left_out[0].why
    assert "mail.domain" in left_out[2].why


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (" Ann@Corp.Example ", ANN),
        ("ann@bücher.example", "ann@xn--bcher-kva.example"),
        ("o'neil+x@corp.example", "o'neil+x@corp.example"),
        ("ann", "ann@d.example"),
    ],
)
def test_address_is_normalized(name: str, expected: str) -> None:
    assert address(name, "d.example") == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "@",
        "ann@",
        "@corp.example",
        "a b@corp.example",
        "a@b@c",
        "ann@corp..example",
        "ann@-.example",
        "<ann@corp.example>",
        ".ann@corp.example",
        "jürgen@corp.example",
        "x\n@corp.example",
        "ann@corp.example\nBcc: eve@corp.example",
    ],
)
def test_invalid_address_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="give the job addresses"):
        address(name, "d.example")


@given(st.text(max_size=40))
def test_address_of_any_name_adds_no_header(name: str) -> None:
    try:
        to = address(name, "corp.example")
    except ValueError:
        return
    email = build_email(Words("s", "t", "h"), "<1-1@corp.example>", [to], MailSettings(), NOW)
    assert email["To"] == to
    headers = email.as_bytes(policy=POLICY).split(b"\r\n\r\n")[0].split(b"\r\n")
    assert len(headers) == 10
    assert f"To: {to}".encode() in headers


names_of_jobs = st.lists(
    st.tuples(
        st.lists(st.sampled_from([ANN, BOB, EVE])),
        st.lists(st.sampled_from([ANN, BOB, EVE, "joe", "Ann@corp.example"])),
    ),
    max_size=6,
)


@given(names_of_jobs, st.integers(1, 3), st.randoms())
def test_each_recipient_is_told_once_of_exactly_the_owned_and_read_tables(
    names: list[tuple[list[str], list[str]]], batch: int, random: Any
) -> None:
    jobs = [
        job(number, tbl_owners=tuple(owners), downstream_users=tuple(readers))
        for number, (owners, readers) in enumerate(names)
    ]
    drafts = envelopes(*jobs, domain="corp.example", batch=batch)
    told = [(task, to) for _, task_ids, recipients in drafts for task in task_ids for to in recipients]
    expected = {
        (each.task_id, to)
        for each in jobs
        for recipients in [recipients_of(each, "corp.example")]
        for to in recipients.owners | recipients.readers
    }
    assert sorted(told) == sorted(expected)
    assert max((len(recipients) for *_, recipients in drafts), default=0) <= batch
    random.shuffle(jobs)
    assert envelopes(*jobs, domain="corp.example", batch=batch) == drafts


def test_note_applies_only_to_its_level() -> None:
    notes = {"<1-a@x>": Note(), "<1-b@x>": Note(frozenset({BOB, ANN}), NOW)}
    noted = with_notes(job(1), notes)
    assert notes_of(noted) == notes
    later = replace(noted, state=State.WRITES_UNBLOCKED, desired_state=State.WRITES_UNBLOCKED)
    assert notes_of(later) == {}
    assert with_notes(noted, {}).record == JobRecord()


def test_single_owner_of_all_tables_is_addressed_as_owner() -> None:
    owned = [job(1, tbl_owners=("Ann@corp.example",)), job(2, tbl_owners=(BOB, ANN))]
    assert audience([ANN], owned, "") == "owner"
    assert audience([ANN], [*owned, job(3)], "") == "user"
    assert audience([ANN, BOB], owned, "") == "user"


@pytest.mark.parametrize("make", [job, on_probation, archived])
def test_date_is_that_of_the_level(make: Any) -> None:
    later = NOW + timedelta(days=1)
    done = with_date(make(1), later)
    dates = [done.comm_level1_date, done.comm_level2_date, done.comm_level3_date]
    assert [number for number, date in enumerate(dates, 1) if date == later] == [level(make(1))]
