from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.fleet.job import Job, State
from tableferry.fleet.notifications.addresses import address, people
from tableferry.fleet.notifications.drafts import (
    Composed,
    audience,
    binding,
    compose,
    is_needed,
    level,
    message_id,
    note,
    noted,
    with_date,
)
from tableferry.fleet.notifications.emails import POLICY, message
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


def composed(
    *jobs: Job, done: frozenset[tuple[int, str]] = frozenset(), domain: str = "", batch: int = 50
) -> Composed:
    return compose(jobs, done, now=NOW, domain=domain, sent_from="corp.example", batch=batch)


def envelopes(*jobs: Job, **how: Any) -> list[tuple[int, tuple[int, ...], tuple[str, ...]]]:
    return [
        (notification.level, notification.task_ids, notification.recipients)
        for notification in composed(*jobs, **how).notifications
    ]


def test_an_owner_gets_one_notification_about_all_their_tables() -> None:
    jobs = [job(1, tbl_owners=(ANN,)), job(2, tbl_owners=(BOB, ANN)), job(3, tbl_owners=(ANN,))]
    assert envelopes(*jobs) == [(1, (1, 2, 3), (ANN,)), (1, (2,), (BOB,))]


def test_users_who_read_the_same_tables_share_a_notification_and_nobody_gets_two() -> None:
    readers = tuple(f"u{number}@corp.example" for number in range(5))
    jobs = [job(1, downstream_users=readers), job(2, downstream_users=readers[:4])]
    assert envelopes(*jobs, batch=3) == [
        (1, (1,), readers[4:]),
        (1, (1, 2), readers[:3]),
        (1, (1, 2), readers[3:4]),
    ]


def test_an_owner_who_also_reads_a_table_is_told_as_owner_alone() -> None:
    assert envelopes(job(1, tbl_owners=(ANN,), downstream_users=("ANN@Corp.Example", BOB))) == [
        (1, (1,), (ANN,)),
        (1, (1,), (BOB,)),
    ]


def test_each_level_has_notifications_of_its_own() -> None:
    jobs = [make(number, tbl_owners=(ANN,)) for number, make in enumerate((job, on_probation, archived))]
    assert envelopes(*jobs) == [(1, (0,), (ANN,)), (2, (1,), (ANN,)), (3, (2,), (ANN,))]


def test_who_has_a_notification_about_a_table_gets_none_again() -> None:
    jobs = [job(1, tbl_owners=(ANN, BOB)), job(2, tbl_owners=(ANN,))]
    assert envelopes(*jobs, done=frozenset({(1, ANN)})) == [(1, (1,), (BOB,)), (1, (2,), (ANN,))]


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
def test_a_step_without_days_has_no_notification(
    make: Any, initial: int, probation: int, needed: bool
) -> None:
    due = make(1, initial_gap_days=initial, probation_gap_days=probation, tbl_owners=(ANN,))
    assert is_needed(due) is needed
    assert bool(envelopes(due)) is needed


def test_names_that_are_no_addresses_get_the_domain_or_are_left_out() -> None:
    names = ("bob", "Data Team", "9b1b2c3d-1111-2222-3333-444455556666")
    assert envelopes(job(1, tbl_owners=names), domain="corp.example") == [(1, (1,), (BOB,))]
    left_out = composed(job(1, tbl_owners=names), job(2, tbl_owners=names)).left_out
    assert [(person.recipient, len(person.tables)) for person in left_out] == [
        (name, 2) for name in sorted(names)
    ]
    assert "mail.domain" in next(person.why for person in left_out if person.recipient == "bob")
    assert "application" in left_out[0].why


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (" Ann@Corp.Example ", ANN),
        ("jürgen@bücher.example", "jürgen@xn--bcher-kva.example"),
        ("o'neil+x@corp.example", "o'neil+x@corp.example"),
        ("ann", "ann@d.example"),
    ],
)
def test_an_address_has_one_spelling(name: str, expected: str) -> None:
    assert address(name, "d.example") == expected


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "@",
            "ann@",
            "@corp.example",
            "a b@corp.example",
            "a@b@c",
            "ann@corp..example",
            "ann@-.example",
        ),
        *("<ann@corp.example>", ".ann@corp.example", "x\n@corp.example"),
        "ann@corp.example\nBcc: eve@corp.example",
    ],
)
def test_what_is_no_address_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="give the job addresses"):
        address(name, "d.example")


@given(st.text(max_size=40))
def test_an_address_of_any_name_goes_into_a_mail_and_adds_no_header(name: str) -> None:
    try:
        to = address(name, "corp.example")
    except ValueError:
        return
    made = message(Words("s", "t", "h"), "<1-1@corp.example>", [to], MailSettings(), NOW)
    assert made["To"] == to
    headers = made.as_bytes(policy=POLICY.clone(utf8=True)).split(b"\r\n\r\n")[0].split(b"\r\n")
    assert len(headers) == 10
    assert f"To: {to}".encode() in headers


jobs_with_people = st.lists(
    st.builds(
        lambda owners, users: (tuple(owners), tuple(users)),
        st.lists(st.sampled_from([ANN, BOB, EVE])),
        st.lists(st.sampled_from([ANN, BOB, EVE, "joe", "Ann@corp.example"])),
    ),
    max_size=6,
)


@given(jobs_with_people, st.integers(1, 3), st.randoms())
def test_everybody_is_told_of_each_of_their_tables_once_whatever_the_order(
    given_people: list[tuple[tuple[str, ...], tuple[str, ...]]], batch: int, random: Any
) -> None:
    jobs = [
        job(number, tbl_owners=owners, downstream_users=users)
        for number, (owners, users) in enumerate(given_people)
    ]
    letters = composed(*jobs, domain="corp.example", batch=batch).notifications
    told_of = [(task, to) for letter in letters for task in letter.task_ids for to in letter.recipients]
    expected = {
        (known.task_id, to)
        for known in jobs
        for to in people(known, "corp.example").owners | people(known, "corp.example").users
    }
    assert sorted(told_of) == sorted(expected)
    assert max((len(letter.recipients) for letter in letters), default=0) <= batch
    assert len({letter.message_id for letter in letters}) == len(letters)
    random.shuffle(jobs)
    assert composed(*jobs, domain="corp.example", batch=batch).notifications == letters


def test_a_message_id_comes_from_level_jobs_recipients_and_edition_and_from_nothing_else() -> None:
    base = message_id(1, (1, 2), (ANN,), "corp.example")
    assert base == message_id(1, (1, 2), (ANN,), "corp.example")
    others = {
        message_id(2, (1, 2), (ANN,), "corp.example"),
        message_id(1, (12,), (ANN,), "corp.example"),
        message_id(1, (1, 2), (ANN, BOB), "corp.example"),
        message_id(1, (1, 2), (ANN,), "corp.example", edition=1),
    }
    assert len(others | {base}) == 5
    assert base.startswith("<1-")
    assert base.endswith("@corp.example>")


def test_a_note_holds_for_its_level_alone() -> None:
    first = note(job(1), {"<1-a@x>": None, "<1-b@x>": [BOB, ANN]})
    assert noted(first) == {"<1-a@x>": None, "<1-b@x>": (ANN, BOB)}
    later = replace(first, state=State.WRITES_UNBLOCKED, desired_state=State.WRITES_UNBLOCKED)
    assert noted(later) == {}
    assert note(first, {}).record == {}


def test_a_notification_binds_when_it_was_sent_or_all_of_its_jobs_have_it_noted() -> None:
    letter = NotificationRecord("<1-a@x>", 1, (1, 2, 3), (ANN,), NOW)
    with_note, without = note(job(1), {"<1-a@x>": None}), job(2)
    assert not binding(letter, {1: with_note, 2: without})
    assert binding(letter, {1: with_note, 2: note(without, {"<1-a@x>": None})})
    assert binding(replace(letter, sent_at=NOW), {1: with_note, 2: without})


def test_a_notification_speaks_to_an_owner_of_all_its_tables() -> None:
    letter = NotificationRecord("<1-a@x>", 1, (1, 2), (ANN,), NOW)
    owned = [job(1, tbl_owners=("Ann@corp.example",)), job(2, tbl_owners=(BOB, ANN))]
    assert audience(letter, owned, "") == "owner"
    assert audience(letter, [*owned, job(3)], "") == "user"
    assert audience(replace(letter, recipients=(ANN, BOB)), owned, "") == "user"


@pytest.mark.parametrize("make", [job, on_probation, archived])
def test_the_date_is_that_of_the_level(make: Any) -> None:
    later = NOW + timedelta(days=1)
    done = with_date(make(1), later)
    dates = [done.comm_level1_date, done.comm_level2_date, done.comm_level3_date]
    assert [number for number, date in enumerate(dates, 1) if date == later] == [level(make(1))]
