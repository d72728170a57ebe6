from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from functools import cache
from itertools import count
from typing import Any, Literal, cast, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fleet_queue import emptied
from tests.mail_server import MailServer
from tests.soak import amount

from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.modes import communicator as mode
from tableferry.fleet.modes.communicator import communicate
from tableferry.fleet.notifications.smtp import Outbox, SendResult, SmtpOutbox
from tableferry.fleet.notifications.texts import Templates
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings, MailSettings
from tableferry.spark.tables import TableName

PEOPLE = [f"{name}@corp.example" for name in ("ann", "bob", "eve", "joe")]
GONE = "gone@corp.example"
STATES = {
    1: (State.READY, State.WRITES_BLOCKED),
    2: (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED),
    3: (State.HIVE_DROPPED, State.HIVE_DROPPED),
}


Kind = Literal["before", "after", "interrupt", "overtaken", "alongside"]


class Crash(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class NewTable:
    """A job to notify people of."""

    level: Literal[1, 2, 3]
    owners: frozenset[str]
    users: frozenset[str]


@dataclass(frozen=True)
class Accident:
    """What happens at a call of the store or the outbox: a crash, Ctrl-C, another worker, late or early."""

    at: int
    kind: Kind


@dataclass(frozen=True)
class Round:
    """What changes before a run, and what happens in it."""

    added: tuple[NewTable, ...]
    owners: frozenset[str] | None
    batch_size: int
    moody: frozenset[str]
    vanish_at: int | None
    accident: Accident | None


some = st.frozensets(st.sampled_from([*PEOPLE, GONE]), max_size=3)
new_tables = st.builds(NewTable, st.sampled_from([1, 1, 1, 2, 3]), some, some)
accidents = st.builds(Accident, st.integers(0, 16), st.sampled_from(get_args(Kind)))
rounds = st.builds(
    Round,
    st.lists(new_tables, max_size=3).map(tuple),
    st.none() | some,
    st.sampled_from([1, 2, 100]),
    st.frozensets(st.sampled_from(PEOPLE), max_size=2),
    st.none() | st.integers(0, 4),
    st.none() | accidents,
)


class Scenario:
    """A queue, a clock that ticks, and workers who have accidents."""

    def __init__(self, store: Store, mail_server: MailServer) -> None:
        self.store, self.mail_server = store, mail_server
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.settings = FleetSettings(mail=MailSettings(host="127.0.0.1", port=mail_server.port, batch=2))
        self.numbers = count()
        self.workers = count()
        self.moody: frozenset[str] = frozenset()
        self.vanish_at: int | None = None
        self.had_accident = False
        mail_server.delivered.clear()
        mail_server.emails.clear()
        mail_server.rcpt, mail_server.vanish = self.rcpt, self.vanish

    def clock(self) -> datetime:
        self.now += timedelta(seconds=0.4)
        return self.now

    def add(self, table: NewTable) -> None:
        name = TableName(("spark_catalog", "d", f"t{next(self.numbers):03}"))
        self.store.add([NewJob(name, probation_gap_days=7)], self.now)
        (job,) = (job for job in self.store.jobs(everything()) if job.name == name)
        state, desired = STATES[table.level]
        job = replace(
            job,
            state=state,
            desired_state=desired,
            to_be_processed=table.level == 1,
            in_process=table.level == 2,
            tbl_owners=tuple(sorted(table.owners)),
            downstream_users=tuple(sorted(table.users)),
        )
        self.store.edit(job, self.now)

    def run(self, batch_size: int = 100, accident: Accident | None = None) -> None:
        """Let a worker have a run; then enough time passes for a claim to lapse."""
        if accident is None:
            self._communicate(self.store, SmtpOutbox, batch_size)
        else:
            accidents = Accidents(self, accident)
            with suppress(Crash, KeyboardInterrupt):
                self._communicate(accidents.store(), accidents.outbox, batch_size)
        self.now += self.settings.lease

    def run_another_worker(self, *, lapsed: bool) -> None:
        """Let another worker have a run, perhaps when the claims of the one at work have lapsed."""
        if lapsed:
            self.now += self.settings.lease
        self._communicate(self.store, SmtpOutbox, 2)

    def _communicate(self, store: Store, outbox: Callable[[MailSettings], Outbox], batch_size: int) -> None:
        communicate(
            store,
            self.settings,
            worker=f"w{next(self.workers)}",
            clock=self.clock,
            batch_size=batch_size,
            outbox=outbox,
        )

    def rcpt(self, address: str) -> str:
        if address == GONE:
            return "550 5.1.1 no such user"
        return "450 mailbox busy" if address in self.moody else ""

    def vanish(self) -> bool:
        return self.vanish_at is not None and len(self.mail_server.emails) == self.vanish_at + 1

    def give_first_table_to(self, owners: frozenset[str]) -> None:
        """Change the owners, unless they were notified."""
        job = self.store.jobs(everything())[0]
        if untold(job):
            self.store.edit(replace(job, tbl_owners=tuple(sorted(owners))), self.now)

    def check(self) -> None:
        """Run once without accidents, and require that each recipient was told of each table under one ID."""
        self.moody, self.vanish_at = frozenset(), None
        self.run()
        jobs = self.store.jobs(everything())
        recorded = self.store.notifications({message_id for message_id, _ in self.mail_server.delivered})
        ids: dict[tuple[int, int, str], set[str]] = defaultdict(set)
        for email in self.mail_server.emails:
            message_id = email["Message-ID"]
            text = email.get_body(("plain",))
            assert text is not None
            listed = [job.task_id for job in jobs if f"  d.{job.tbl_name}\r\n" in text.get_content()]
            assert set(listed) <= set(recorded[message_id].task_ids)
            for to in {to for delivered, to in self.mail_server.delivered if delivered == message_id}:
                for task in listed:
                    ids[task, recorded[message_id].level, to].add(message_id)
        assert [job.task_id for job in jobs if untold(job)] == []
        recipients = {
            (job.task_id, level(job), to)
            for job in jobs
            for to in {*job.tbl_owners, *job.downstream_users} - {GONE}
        }
        assert recipients - ids.keys() == set()
        assert {key: some for key, some in ids.items() if len(some) > 1} == {}


class Accidents:
    """Counts the calls of a run, and has the accident at its time."""

    def __init__(self, scenario: Scenario, accident: Accident) -> None:
        self.scenario, self.accident = scenario, accident
        self.calls = count()

    def call(self, do: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if next(self.calls) != self.accident.at:
            return do(*given, **named)
        self.scenario.had_accident = True
        match self.accident.kind:
            case "before":
                raise Crash
            case "interrupt":
                raise KeyboardInterrupt
            case "overtaken" | "alongside":
                self.scenario.run_another_worker(lapsed=self.accident.kind == "overtaken")
                return do(*given, **named)
            case "after":
                do(*given, **named)
                raise Crash

    def store(self) -> Store:
        accidents = self

        class Calls:
            def __getattr__(self, name: str) -> Callable[..., Any]:
                method = getattr(accidents.scenario.store, name)
                return lambda *given, **named: accidents.call(method, *given, **named)

        return cast(Store, Calls())

    def outbox(self, mail: MailSettings) -> Outbox:
        accidents, real = self, SmtpOutbox(mail)

        class Calls:
            def send(self, message: EmailMessage, recipients: Sequence[str]) -> SendResult:
                delivery: SendResult = accidents.call(real.send, message, recipients)
                return delivery

            def close(self) -> None:
                real.close()

        return Calls()


@pytest.fixture(scope="module")
def mail_server() -> Iterator[MailServer]:
    with MailServer() as opened:
        yield opened


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    opened = open_store(f"sqlite:///{tmp_path_factory.mktemp('queue')}/fleet.db")
    assert isinstance(opened, SqlStore)
    opened.create()
    yield opened
    opened.close()


@pytest.fixture(scope="module", autouse=True)
def templates_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mode, "Templates", cache(Templates))
        yield


@pytest.fixture
def new_scenario(mail_server: MailServer, store: SqlStore) -> Callable[[], Scenario]:
    """Gives scenarios with nothing in them; each ends the one before."""

    def create() -> Scenario:
        emptied(store)
        return Scenario(store, mail_server)

    return create


@settings(
    max_examples=amount(5, 12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(first=st.lists(new_tables, min_size=1, max_size=4), then=st.lists(rounds, min_size=1, max_size=4))
def test_all_recipients_are_notified_and_a_repeat_has_the_first_message_id(
    new_scenario: Callable[[], Scenario], first: list[NewTable], then: list[Round]
) -> None:
    scenario = new_scenario()
    for table in first:
        scenario.add(table)
    for run in then:
        for table in run.added:
            scenario.add(table)
        if run.owners is not None:
            scenario.give_first_table_to(run.owners)
        scenario.moody = run.moody
        scenario.vanish_at = (
            None if run.vanish_at is None else len(scenario.mail_server.emails) + run.vanish_at
        )
        scenario.run(run.batch_size, run.accident)
    scenario.check()


def calls_for(kind: Kind) -> Iterator[int]:
    """Count the calls at which an accident of a kind comes: all of them, or every other one.

    The kinds begin in turn with the first and the second, so that each call has accidents in every run.
    """
    step = amount(2, 1)
    return count(get_args(Kind).index(kind) % step, step)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_accident_at_any_call_drops_no_notification(new_scenario: Callable[[], Scenario], kind: Kind) -> None:
    ann, bob, eve, joe = PEOPLE
    for at in calls_for(kind):
        scenario = new_scenario()
        for _ in range(3):
            scenario.add(NewTable(1, frozenset({ann, GONE}), frozenset({bob, eve})))
        scenario.moody = frozenset({eve})
        scenario.run(accident=Accident(at, kind))
        scenario.add(NewTable(1, frozenset({ann}), frozenset({bob})))
        scenario.give_first_table_to(frozenset({joe}))
        scenario.check()
        if not scenario.had_accident:
            break
    # Claim, note, record, three notifications, remember, settle: each was called, with some reads.
    assert at > 8


@pytest.mark.parametrize("kind", get_args(Kind))
def test_accident_in_a_run_with_one_of_the_jobs_drops_no_notification(
    new_scenario: Callable[[], Scenario], kind: Kind
) -> None:
    for at in calls_for(kind):
        scenario = new_scenario()
        for _ in range(3):
            scenario.add(NewTable(1, frozenset({PEOPLE[0]}), frozenset()))
        scenario.vanish_at = 0
        scenario.run()
        scenario.run(batch_size=1, accident=Accident(at, kind))
        scenario.check()
        if not scenario.had_accident:
            break
    assert at > 6


def level(job: Job) -> int:
    return next(number for number, pair in STATES.items() if job.pair == pair)


def untold(job: Job) -> bool:
    dates = {1: job.comm_level1_date, 2: job.comm_level2_date, 3: job.comm_level3_date}
    return dates[level(job)] is None
