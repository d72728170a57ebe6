from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tests import conditions
from tests.mail_server import MailServer
from tests.unit.fleets import opened

from tableferry.cli.fleet.reports import notification_lines
from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.modes import communicator as communicating
from tableferry.fleet.modes.communicator import CommunicateReport, communicate
from tableferry.fleet.notifications.readers import refused_recipients
from tableferry.fleet.notifications.smtp import SendResult
from tableferry.fleet.operations.history import notifications_of
from tableferry.fleet.queue.records import NewJob, NotificationRecord
from tableferry.fleet.queue.selections import everything, finished, numbered, to_migrate
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings, MailSettings
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN, BOB, EVE = "ann@corp.example", "bob@corp.example", "eve@corp.example"


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with MailServer() as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    queue_store = opened(tmp_path)
    yield queue_store
    queue_store.close()


@pytest.fixture
def tell(store: Store, mail_server: MailServer) -> Callable[..., CommunicateReport]:
    """Runs the communicator at a time, as a separate worker."""

    def run(now: datetime = NOW, mail: MailSettings | None = None, **how: Any) -> CommunicateReport:
        mail = mail or MailSettings(host="127.0.0.1", port=mail_server.port)
        settings = FleetSettings(mail=mail)
        return communicate(store, settings, worker=f"at {now}", clock=lambda: now, **how)

    return run


def add(store: Store, table: str, **more: Any) -> int:
    """Add a table whose owners are to be notified of its migration, and return its job's number."""
    name = TableName(("spark_catalog", "sales", table))
    store.add([NewJob(name)], NOW)
    (job,) = (job for job in store.jobs(everything()) if job.name == name)
    ready: dict[str, Any] = {
        "state": State.READY,
        "desired_state": State.WRITES_BLOCKED,
        "to_be_processed": True,
        "probation_gap_days": 7,
    }
    return store.edit(replace(job, **{**ready, **more}), NOW).task_id


def at(state: State, **more: Any) -> dict[str, Any]:
    resting = {"state": state, "desired_state": state, "to_be_processed": False}
    return {**resting, "in_process": state is State.WRITES_UNBLOCKED, **more}


def jobs(store: Store) -> dict[str, Job]:
    return {job.tbl_name: job for job in store.jobs(everything())}


def test_each_level_is_notified_and_dated(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    add(store, "a", tbl_owners=(ANN,), downstream_users=(BOB, EVE))
    add(store, "b", tbl_owners=(ANN,), **at(State.WRITES_UNBLOCKED))
    add(store, "c", tbl_owners=(ANN,), **at(State.HIVE_DROPPED))
    assert tell() == CommunicateReport(sent=4, jobs={1: 1, 2: 1, 3: 1})
    assert [to for _, to in mail_server.delivered] == [ANN, BOB, EVE, ANN, ANN]
    dated = jobs(store)
    dates = [dated["a"].comm_level1_date, dated["b"].comm_level2_date, dated["c"].comm_level3_date]
    assert dates == [NOW, NOW, NOW]
    assert [(job.claimed_by, job.record) for job in dated.values()] == [(None, JobRecord())] * 3
    assert {job.tbl_name for job in store.jobs(to_migrate(NOW + timedelta(days=14)))} == {"a"}
    assert {job.tbl_name for job in store.jobs(finished())} == {"c"}
    assert tell() == CommunicateReport()


def test_claims_are_renewed_while_the_server_is_slow(
    store: Store, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "a", tbl_owners=(ANN,))
    clock = FixedClock(NOW)
    settings = FleetSettings(mail=MailSettings(host="127.0.0.1", port=mail_server.port))
    others: list[int] = []

    @contextmanager
    def beating(renew: Callable[[], None], lease: timedelta) -> Iterator[None]:
        def slowly(address: str) -> str:
            clock.turn(minutes=settings.lease_minutes - 1)
            renew()
            clock.turn(minutes=2)
            claimed = store.claim(everything(), "another", now=clock(), lease=lease, limit=9)
            others.extend(job.task_id for job in claimed)
            return ""

        mail_server.rcpt = slowly
        yield

    monkeypatch.setattr(communicating, "heartbeat", beating)
    assert communicate(store, settings, worker="slow", clock=clock) == CommunicateReport(sent=1, jobs={1: 1})
    assert others == []


def test_step_without_days_is_dated_without_a_notification(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport], tmp_path: Path
) -> None:
    none = {"initial_gap_days": 0, "probation_gap_days": 0, "tbl_owners": (ANN,)}
    add(store, "a", **none)
    add(store, "b", **at(State.WRITES_UNBLOCKED), **none)
    add(store, "c", **at(State.HIVE_DROPPED), **none)
    dry = tell(dry_run_to=tmp_path)
    assert dry == CommunicateReport(untold=3, unneeded=3)
    assert list(notification_lines(dry, tmp_path)) == [
        f"0 notifications in {tmp_path}; nothing was sent.",
        "No notification for 3 tables whose gap is 0 days: a real run only records the date.",
    ]
    assert tell() == CommunicateReport(jobs={1: 1, 2: 1, 3: 1}, unneeded=3)
    assert mail_server.sessions == 0


def test_job_without_recipients_is_dated(store: Store, tell: Callable[..., CommunicateReport]) -> None:
    add(store, "a")
    assert tell() == CommunicateReport(jobs={1: 1})
    assert jobs(store)["a"].comm_level1_date == NOW


def test_paused_job_is_not_notified_of(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    add(store, "a", tbl_owners=(ANN,), migration_paused=True, pause_reason=PauseReason.PAUSED_BY_USER.value)
    assert tell() == CommunicateReport()
    assert mail_server.delivered == []


def test_name_gets_the_domain_or_is_reported(
    store: Store,
    mail_server: MailServer,
    tell: Callable[..., CommunicateReport],
    caplog: pytest.LogCaptureFixture,
) -> None:
    add(store, "a", tbl_owners=("ann", "Data Team"))
    mail = MailSettings(host="127.0.0.1", port=mail_server.port, domain="corp.example")
    with caplog.at_level(logging.INFO, "tableferry"):
        report = tell(mail=mail)
    assert [to for _, to in mail_server.delivered] == [ANN]
    assert [(person.recipient, [str(table) for table in person.tables]) for person in report.left_out] == [
        ("Data Team", ["spark_catalog.sales.a"])
    ]
    assert f"notification of level 1 to {ANN} about spark_catalog.sales.a" in caplog.messages
    assert report.jobs == {1: 1}


def test_permanently_refused_recipient_is_reported_and_others_are_notified(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    mail_server.rcpt = lambda address: "550 5.1.1 no such user" if address == BOB else ""
    add(store, "a", tbl_owners=(BOB,), downstream_users=(ANN, EVE))
    add(store, "b", tbl_owners=(ANN,), downstream_users=(BOB, EVE))
    report = tell()
    assert report.jobs == {1: 2}
    assert (report.ok, report.failed, report.problems) == (True, 0, ())
    assert [(person.recipient, person.why) for person in report.left_out] == [
        (BOB, "the mail server replied: 550 5.1.1 no such user")
    ] * 2
    assert sorted(to for _, to in mail_server.delivered) == [ANN, ANN, EVE]


def test_waiting_recipient_holds_back_the_job_and_gets_the_notification_in_the_next_run(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    mail_server.rcpt = lambda address: "450 mailbox busy" if address == BOB else ""
    add(store, "a", tbl_owners=(ANN,), downstream_users=(BOB, EVE))
    add(store, "b", tbl_owners=(ANN,))
    first = tell()
    assert (first.jobs, first.untold, first.failed, first.sent) == ({1: 1}, 1, 1, 2)
    assert first.problems == (f"{BOB} waits for the next run: 450 mailbox busy",)
    assert not first.ok
    assert jobs(store)["a"].comm_level1_date is None
    mail_server.rcpt = lambda address: ""
    add(store, "c", tbl_owners=(ANN, BOB))
    later = tell(NOW + timedelta(days=1))
    assert (later.jobs, later.sent, later.repeated) == ({1: 2}, 3, 1)
    # Eve's notification isn't repeated, and Bob's has the Message-ID that hers had.
    (eves,) = (message_id for message_id, to in mail_server.delivered if to == EVE)
    assert (eves, BOB) in mail_server.delivered
    assert jobs(store)["a"].comm_level1_date == NOW + timedelta(days=1)


DENIED = "550 5.7.1 recipient not allowed"


def test_recipient_denied_by_the_server_does_not_hold_back_jobs(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    mail_server.rcpt = lambda address: DENIED if address == BOB else ""
    for table in ("a", "b"):
        add(store, table, tbl_owners=(ANN,), downstream_users=(BOB, EVE))
    add(store, "c", tbl_owners=(BOB,))

    report = tell()

    assert (report.jobs, report.untold, report.ok, report.problems) == ({1: 3}, 0, True, ())
    assert [
        (left.recipient, [table.table for table in left.tables], left.why) for left in report.left_out
    ] == [
        (BOB, ["a", "b"], f"the mail server replied: {DENIED}"),
        (BOB, ["c"], f"the mail server replied: {DENIED}"),
    ]
    assert sorted(to for _, to in mail_server.delivered) == [ANN, EVE]
    assert tell(NOW + timedelta(days=1)) == CommunicateReport()
    assert [refused_recipients(job) for job in jobs(store).values()] == [(1, {BOB: DENIED})] * 3
    # The notification after the migration is accepted.
    mail_server.rcpt = lambda address: ""
    store.edit(replace(jobs(store)["a"], **at(State.WRITES_UNBLOCKED)), NOW)
    assert tell(NOW + timedelta(days=2)).jobs == {2: 1}
    assert refused_recipients(jobs(store)["a"]) == (0, {})


def test_recipient_refused_for_a_week_is_left_out(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    words = "450 4.2.1 mailbox busy"
    mail_server.rcpt = lambda address: words if address == BOB else ""
    add(store, "a", tbl_owners=(BOB,))
    assert tell().untold == 1
    with MailServer() as closed:
        pass
    # An unreachable server refuses no recipient.
    assert tell(NOW + timedelta(days=6), MailSettings(host="127.0.0.1", port=closed.port)).untold == 1
    add(store, "b", tbl_owners=(ANN,))
    assert tell(NOW + timedelta(days=6)).jobs == {1: 1}

    report = tell(NOW + timedelta(days=7))

    assert (report.jobs, report.ok) == ({1: 1}, True)
    assert [(left.recipient, left.why) for left in report.left_out] == [
        (BOB, f"the mail server replied: {words}")
    ]


@pytest.mark.parametrize("reply", ["450 4.7.1 try later", DENIED])
def test_server_that_refuses_all_recipients_leaves_none_out(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport], reply: str
) -> None:
    mail_server.rcpt = lambda address: reply
    add(store, "a", tbl_owners=(ANN,), downstream_users=(BOB,))
    for days in (0, 7, 30):
        report = tell(NOW + timedelta(days=days))
        assert (report.jobs, report.untold, report.failed, report.left_out) == ({}, 1, 2, ())
    refused, waiting = report.problems
    assert (
        f"[MAIL_ALL_RECIPIENTS_REFUSED] The mail server 127.0.0.1:{mail_server.port} refused all" in refused
    )
    assert waiting == f"2 recipients wait for the next run, {ANN} among them: {reply}"
    mail_server.rcpt = lambda address: ""
    assert tell(NOW + timedelta(days=31)) == CommunicateReport(sent=2, repeated=2, jobs={1: 1})


def test_only_recipient_is_left_out_if_denied_after_the_server_accepted_others(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    add(store, "a", tbl_owners=(ANN,))
    assert tell().jobs == {1: 1}
    mail_server.rcpt = lambda address: DENIED
    add(store, "b", tbl_owners=(BOB,))
    assert tell(NOW + timedelta(days=3)).jobs == {1: 1}


def test_days_without_a_server_do_not_count_as_refusals(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    add(store, "a", tbl_owners=(BOB,))
    with MailServer() as closed:
        pass
    assert tell(mail=MailSettings(host="127.0.0.1", port=closed.port)).untold == 1
    mail_server.rcpt = lambda address: "450 greylisted" if address == BOB else ""
    add(store, "b", tbl_owners=(ANN,))
    eight_days_later = tell(NOW + timedelta(days=8))
    assert (eight_days_later.jobs, eight_days_later.untold, eight_days_later.left_out) == ({1: 1}, 1, ())
    mail_server.rcpt = lambda address: ""
    assert tell(NOW + timedelta(days=9)).jobs == {1: 1}


def test_recorded_notification_is_sent_as_recorded_and_new_ones_cover_the_rest(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    numbers = [add(store, table, tbl_owners=(ANN,)) for table in "ab"]
    mail_server.data = lambda: "451 later"
    assert tell().failed == 1
    mail_server.data = lambda: ""
    for job in store.jobs(everything()):
        store.edit(replace(job, tbl_owners=(BOB,)), NOW)
    numbers.append(add(store, "c", tbl_owners=(ANN,)))
    report = tell(NOW + timedelta(days=1))
    assert (report.sent, report.repeated, report.jobs) == (3, 1, {1: 3})
    recorded = store.notifications(message_id for message_id, _ in mail_server.delivered)
    sent = [(recorded[message_id].task_ids, to) for message_id, to in mail_server.delivered]
    assert sent == [(tuple(numbers[:2]), ANN), (tuple(numbers[:2]), BOB), ((numbers[2],), ANN)]


def test_unreachable_server_loses_no_notification(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    add(store, "a", tbl_owners=(ANN,), downstream_users=(BOB,))
    add(store, "b")
    with MailServer() as closed:
        pass
    report = tell(mail=MailSettings(host="127.0.0.1", port=closed.port))
    assert (report.sent, report.failed, report.jobs, report.untold) == (0, 2, {1: 1}, 1)
    assert len(report.problems) == 1
    assert "[MAIL_SERVER_UNREACHABLE] The mail server " in report.problems[0]
    assert "\n" not in report.problems[0]
    assert tell() == CommunicateReport(sent=2, repeated=2, jobs={1: 1})
    assert [to for _, to in mail_server.delivered] == [ANN, BOB]


def test_second_migration_of_a_table_has_new_notifications(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    add(store, "a", tbl_owners=(ANN,))
    for day in range(3):
        assert tell(NOW + timedelta(days=day)) == CommunicateReport(sent=1, jobs={1: 1})
        store.edit(replace(jobs(store)["a"], comm_level1_date=None), NOW)
    assert len(set(mail_server.delivered)) == 3


class SlowOutbox:
    """Sends each notification in 50 minutes."""

    def __init__(self, clock: FixedClock, before: Callable[[], None]) -> None:
        self.clock, self.before = clock, before

    def send(self, email: EmailMessage, recipients: Sequence[str]) -> SendResult:
        self.before()
        self.clock.turn(minutes=50)
        return SendResult()

    def close(self) -> None:
        pass


def test_lease_is_renewed_between_notifications(store: Store) -> None:
    add(store, "a", tbl_owners=(ANN,), downstream_users=(BOB,))
    clock, leases = FixedClock(NOW), []
    outbox = SlowOutbox(clock, lambda: leases.append(jobs(store)["a"].lease_until))
    settings = FleetSettings(lease_minutes=60)
    report = communicate(store, settings, worker="w", clock=clock, outbox=lambda mail: outbox)
    assert report.jobs == {1: 1}
    assert leases == [NOW + timedelta(minutes=minutes) for minutes in (60, 110)]


def test_worker_that_lost_its_claim_sends_no_more(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    add(store, "a", tbl_owners=(ANN,), downstream_users=(BOB,))
    clock = FixedClock(NOW)

    def overtake() -> None:
        later = NOW + timedelta(minutes=61)
        assert tell(later) == CommunicateReport(sent=2, repeated=2, jobs={1: 1})

    outbox = SlowOutbox(clock, overtake)
    settings = FleetSettings(lease_minutes=60)
    report = communicate(store, settings, worker="slow", clock=clock, outbox=lambda mail: outbox)
    assert (report.sent, report.jobs, report.untold) == (1, {}, 0)
    assert [to for _, to in mail_server.delivered] == [ANN, BOB]


def test_dry_run_writes_the_notifications_and_changes_nothing(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport], tmp_path: Path
) -> None:
    add(store, "a", tbl_owners=(ANN,), downstream_users=(BOB, EVE))
    add(store, "b", tbl_owners=(ANN,), target_format=TargetFormat.DELTA, **at(State.WRITES_UNBLOCKED))
    before, folder = jobs(store), tmp_path / "notifications" / "new"
    for _ in range(2):
        report = tell(dry_run_to=folder)
        assert (report.sent, report.jobs, report.untold) == (3, {}, 2)
    files = sorted(folder.glob("*.eml"))
    assert [file.name.rsplit("-", 1)[0] for file in files] == [
        "level1-2_readers",
        f"level1-{ANN}",
        f"level2-{ANN}",
    ]
    readers, owner, probation = (
        message_from_bytes(file.read_bytes(), policy=policy.default) for file in files
    )
    assert readers["Bcc"] == f"{BOB}, {EVE}"
    assert owner["Subject"] == "[Hive to Iceberg migration] sales.a, from 15 January 2026 on"
    assert probation["Subject"] == "[Hive to Delta migration] sales.b is on probation until 8 January 2026"
    assert jobs(store) == before
    assert store.notifications(str(mail["Message-ID"]) for mail in (readers, owner, probation)) == {}
    assert mail_server.sessions == 0
    assert tell().sent == 3


def test_invalid_settings_are_reported_before_a_job_is_claimed(
    store: Store, tell: Callable[..., CommunicateReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TABLEFERRY_FLEET_MAIL_PASSWORD", raising=False)
    add(store, "a", tbl_owners=(ANN,))
    with conditions.raises("MAIL_ADDRESS_INVALID", setting="mail.sender", text="data team"):
        tell(mail=MailSettings(sender="data team"))
    with conditions.raises("MAIL_ADDRESS_INVALID", setting="mail.reply_to", text="x@"):
        tell(mail=MailSettings(reply_to="x@"))
    with conditions.raises("MAIL_PASSWORD_MISSING", user="u"):
        tell(mail=MailSettings(user="u", password=SecretStr("")))
    assert jobs(store)["a"].revision == 1


@pytest.mark.parametrize("recorded_earlier", [False, True])
def test_template_that_fails_for_one_notification_is_reported_before_the_first_is_sent(
    store: Store,
    mail_server: MailServer,
    tell: Callable[..., CommunicateReport],
    tmp_path: Path,
    recorded_earlier: bool,
) -> None:
    add(store, "a", tbl_owners=(ANN,))
    number = add(store, "b", tbl_owners=(BOB,))
    if recorded_earlier:
        mail_server.data = lambda: "451 later"
        assert tell().failed == 2
        mail_server.data = lambda: ""
    before = jobs(store)["b"].record
    words = "{% extends layout %}{% block subject %}{{ 1 // (tables[0].name != 'sales.b') }}{% endblock %}"
    (tmp_path / "templates").mkdir()
    file = tmp_path / "templates" / "level1_owner.j2"
    file.write_text(words)
    mail = MailSettings(host="127.0.0.1", port=mail_server.port, templates=file.parent)
    with conditions.raises(
        "NOTIFICATION_TEMPLATE_FAILED", place=f"{file}:1", reason=re.compile("division.* by zero")
    ):
        tell(mail=mail)
    assert mail_server.delivered == []
    assert (jobs(store)["b"].record, jobs(store)["b"].claimed_by) == (before, None)
    report = tell()
    assert (report.sent, report.repeated, report.jobs) == (2, 2 * recorded_earlier, {1: 2})
    assert len(notifications_of(store, store.jobs(numbered([number]))[0])) == 1


def test_run_claims_at_most_batch_size_jobs(store: Store, tell: Callable[..., CommunicateReport]) -> None:
    for table in "abc":
        add(store, table, tbl_owners=(ANN,))
    assert tell(batch_size=2).jobs == {1: 2}
    assert tell(batch_size=2).jobs == {1: 1}


def test_runs_with_single_jobs_send_a_shared_notification_to_each_recipient_once(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    for table in ("a", "b"):
        add(store, table, downstream_users=(BOB, EVE))
    waits = {BOB, EVE}
    mail_server.rcpt = lambda address: "451 try again later" if address in waits else ""
    assert tell(NOW).failed == 1
    waits = {BOB}
    assert tell(NOW + timedelta(hours=1), batch_size=1).failed == 1
    waits = {EVE}
    assert tell(NOW + timedelta(hours=2), batch_size=1).jobs == {1: 1}
    assert tell(NOW + timedelta(hours=3)) == CommunicateReport(jobs={1: 1})
    assert [to for _, to in mail_server.delivered] == [EVE, BOB]


def test_small_run_prefers_jobs_over_those_with_waiting_recipients(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    for table, owner in (("a", ANN), ("b", ANN), ("c", BOB)):
        add(store, table, tbl_owners=(owner,))
    mail_server.rcpt = lambda address: "452 mailbox full" if address == ANN else ""
    assert tell(NOW + timedelta(hours=1), batch_size=2).failed == 1
    assert tell(NOW + timedelta(hours=2), batch_size=2).jobs == {1: 1}
    assert [to for _, to in mail_server.delivered] == [BOB]


def test_notifications_that_version_0_2_recorded_and_did_not_send_are_sent(
    store: Store, mail_server: MailServer, tell: Callable[..., CommunicateReport]
) -> None:
    digest = "0" * 64
    owners, readers, known = (f"<1-{number}{digest}@localhost>" for number in "123")
    noted = {"left": {owners: None, readers: [EVE, "jürgen@corp.example"], known: None}, "level": 1}
    refused = {"put_off": {readers: (NOW - timedelta(days=6)).isoformat()}}
    people = {"tbl_owners": (ANN,), "downstream_users": (BOB, EVE)}
    numbers = tuple(add(store, table, record=JobRecord(letters=noted | refused), **people) for table in "ab")
    store.record_notifications(
        [
            NotificationRecord(owners, 1, numbers, (ANN,), NOW),
            NotificationRecord(readers, 1, numbers, (BOB, EVE, "jürgen@corp.example"), NOW),
            NotificationRecord(known, 1, numbers, ("gone@corp.example",), NOW, NOW),
        ]
    )
    mail_server.rcpt = lambda address: "450 busy" if address == EVE else ""

    first = tell()
    mail_server.rcpt = lambda address: ""
    second = tell(NOW + timedelta(hours=1))

    assert (first.sent, first.repeated, first.failed, first.untold) == (1, 1, 1, 2)
    assert (second.sent, second.repeated, second.jobs) == (1, 1, {1: 2})
    assert mail_server.delivered == [(owners, ANN), (readers, EVE)]
    text = mail_server.emails[0].get_body(("plain",))
    assert text is not None
    assert "sales.a" in text.get_content()
    assert "sales.b" in text.get_content()
    assert [job.record for job in jobs(store).values()] == [JobRecord()] * 2
