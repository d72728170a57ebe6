"""Measure conversions of Parquet to Delta by tableferry, CONVERT TO DELTA and delta-rs, and a lower bound.

python benchmarks/convert.py --files 2000 20000 200000 --markdown
python benchmarks/convert.py --files --no-large --shapes --markdown

Creates directories of small partitioned files, and one of 40 large files, once for all runs. Converts the
same files, each time in a separate process: by tableferry with each reader of footers, by CONVERT TO DELTA
with and without statistics, with default settings and with few partitions, and by delta-rs. The lower bound
opens every footer by pyarrow and writes a commit of the same size. --shapes adds directories of files with
many columns and row groups, by three writers (pyarrow, Spark, and Polars if it is installed).

Prints whole processes first, imports included, as users run them: the least CPU and wall seconds of
`tableferry convert FOLDER` and of Python with `deltalake.convert_to_deltalake`. Then, for each converter:

- start: imports, and the Spark session if the converter needs one;
- first: the first conversion in that process;
- warm: the median of the other conversions;
- CPU: the median of the seconds of all cores for these conversions, without Java;
- peak memory: the kernel's high-water mark of the Python process, of Java and of Spark's Python workers.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

# Replace this folder, because its modules would hide others of the same names.
sys.path[0] = str(Path(__file__).parents[1])
from benchmarks import lake_shapes  # noqa: E402

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SMALL_ROWS, LARGE_ROWS, LARGE_FILES = 100, 370_000, 40
FILES_A_DAY, FEWEST_DAYS = 100, 20
# Files that a process writes per task.
CHUNK = 250

LARGE = f"{LARGE_FILES} large files"

FIRST_COMMIT = f"{0:020}.json"
# The approximate size of tableferry's commits.
COMMIT_BYTES_A_FILE = 550

# The defaults of Spark and Delta; `session.resolve` sets lower values, for small tables.
DEFAULTS = {
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.adaptive.enabled": "true",
    "spark.databricks.delta.snapshotPartitions": "50",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "10000",
}

Convert = Callable[[Path], object]


@dataclass(frozen=True)
class Contender:
    """A converter to measure.

    Attributes:
        title: Its title in the table.
        start: Returns the function that converts; runs in a separate process.
        cores: Cores for Spark; 0 without Spark.
        repeat: Factor of the number of warm runs; higher for fast converters.
    """

    title: str
    start: Callable[[Path], Convert]
    cores: int = 0
    repeat: int = 1


@dataclass(frozen=True)
class Measured:
    """Measurements of one contender with one directory: seconds, and peak megabytes."""

    contender: str
    data: str
    start: float
    first: float
    warm: float
    least: float
    most: float
    cpu: float
    python: int
    java: int
    workers: int
    commit: int

    @property
    def memory(self) -> str:
        """All peaks above zero."""
        return " + ".join(str(peak) for peak in (self.python, self.java, self.workers) if peak)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="*", default=[2000, 20_000], help="numbers of small files")
    parser.add_argument("--large", action=argparse.BooleanOptionalAction, default=True, help="40 large files")
    parser.add_argument("--shapes", action="store_true", help="add files with many columns and row groups")
    parser.add_argument(
        "--only", nargs="*", choices=CONTENDERS, default=list(CONTENDERS), metavar="CONTENDER"
    )
    parser.add_argument("--repeat", type=int, default=3, help="warm runs")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tableferry-bench")
    parser.add_argument("--markdown", action="store_true", help="print a table for docs/benchmarks.md")
    parser.add_argument("--output", type=Path, help="file for all figures, as JSON")
    parser.add_argument("--run", nargs=2, metavar=("CONTENDER", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(run(arguments.run[0], Path(arguments.run[1]), arguments.repeat)))
        return
    cache = arguments.cache
    sets = {f"{count:,} files": partial(made, cache, count, SMALL_ROWS) for count in arguments.files}
    if arguments.large:
        sets[LARGE] = partial(made, cache, LARGE_FILES, LARGE_ROWS)
    for shape in lake_shapes.SHAPES if arguments.shapes else ():
        if shape.writer != "polars" or find_spec("polars"):
            sets[shape.title] = partial(shaped, cache, shape)
    print(machine(), flush=True)
    measured = []
    for title, make in sets.items():
        folder = make()
        size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        print(f"\n{title}, {size / 1e6:,.0f} MB\n{whole_processes(folder, arguments.repeat)}", flush=True)
        print(HEADING, flush=True)
        for name in arguments.only:
            timing = measure(name, title, folder, arguments.repeat)
            measured.append(timing)
            print(line(timing), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps([asdict(result) for result in measured], indent=1))
    print(f"\n{goals(measured)}")
    if arguments.markdown:
        of_shapes = [result for result in measured if " by " in result.data]
        others = [result for result in measured if " by " not in result.data]
        for tell, results in ((markdown, others), (by_shape, of_shapes)):
            print(f"\n{tell(results)}" if results else "")


# The programs that users start, with the folder as the last argument.
PROCESSES = {
    "tableferry convert": "from tableferry.cli import main; main()",
    "delta-rs": (
        "import sys; from deltalake import Field, Schema, convert_to_deltalake; "
        "from deltalake.schema import PrimitiveType; days = Schema([Field('day', PrimitiveType('date'))]); "
        "convert_to_deltalake(sys.argv[-1], partition_by=days, partition_strategy='hive')"
    ),
}


def whole_processes(folder: Path, repeat: int) -> str:
    """Convert a directory in separate processes; return the least CPU seconds and wall seconds as text.

    The times include imports. Compiled modules are kept, as after an installation.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    seconds: dict[str, list[tuple[float, float]]] = {title: [] for title in PROCESSES}
    # The first run of each fills caches and isn't counted.
    for _ in range(1 + repeat):
        for title, code in PROCESSES.items():
            with renamed(folder, 0) as table:
                started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-c", code, "convert", str(table)]
                subprocess.run(command, env=environment, capture_output=True, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                seconds[title].append((cpu, time.perf_counter() - started))
    lines = [f"{'whole processes':<58}{'CPU':>8}{'wall':>8}"]
    for title, runs in seconds.items():
        cpu, wall = (min(side) for side in zip(*runs[1:], strict=True))
        lines.append(f"{title:<58}{cpu:>8.3f}{wall:>8.3f}")
    return "\n".join(lines)


def measure(name: str, data: str, folder: Path, repeat: int) -> Measured:
    """Run one contender in a separate process."""
    contender = CONTENDERS[name]
    warm = repeat * contender.repeat
    command = [sys.executable, __file__, "--run", name, str(folder), "--repeat", str(warm)]
    environment = os.environ | {"TABLEFERRY_MASTER": f"local[{contender.cores}]", "SPARK_DRIVER_MEMORY": "4g"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout)
    times, processor = figures.pop("times"), figures.pop("processor")
    return Measured(
        name,
        data,
        first=times[0],
        warm=statistics.median(times[1:]),
        least=min(times[1:]),
        most=max(times[1:]),
        cpu=0.0 if contender.cores else statistics.median(processor[1:]),
        **figures,
    )


def run(name: str, folder: Path, repeat: int) -> dict[str, object]:
    """Convert a directory several times in this process, and return the measurements."""
    with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as scratch:
        started = time.perf_counter()
        convert = CONTENDERS[name].start(Path(scratch))
        start = time.perf_counter() - started
        times, processor = [], []
        commit = 0
        for number in range(1 + repeat):
            # Each run has a different path, because Delta caches logs by their path.
            with renamed(folder, number) as table:
                started, before = time.perf_counter(), time.process_time()
                convert(table)
                times.append(time.perf_counter() - started)
                processor.append(time.process_time() - before)
                commit = (table / "_delta_log" / FIRST_COMMIT).stat().st_size
        peaks = peak_megabytes()
        if "pyspark" in sys.modules:
            from tableferry.spark import session

            session.stop(session.resolve(say=lambda text: None))
    return {"start": start, "times": times, "processor": processor, "commit": commit, **peaks}


@contextmanager
def renamed(folder: Path, number: int) -> Iterator[Path]:
    """Rename a directory; afterwards remove its log and restore its name."""
    table = folder.with_name(f"{folder.name}-{os.getpid()}-{number}")
    folder.rename(table)
    try:
        yield table
    finally:
        shutil.rmtree(table / "_delta_log", ignore_errors=True)
        table.rename(folder)


def peak_megabytes() -> dict[str, int]:
    """Return the peak memory of this process, of Java and of the other descendants."""
    parents, names, peaks = {}, {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(row.split(":", 1) for row in status.read_text().splitlines())
        except OSError:  # The process has ended.
            continue
        process = int(status.parent.name)
        parents[process], names[process] = int(fields["PPid"]), fields["Name"].strip()
        peaks[process] = int(fields.get("VmHWM", "0 kB").split()[0])
    actual = {"python": peaks[os.getpid()], "java": 0, "workers": 0}
    for process in peaks:
        above = parents.get(process, 0)
        while above and above != os.getpid():
            above = parents.get(above, 0)
        if above:
            actual["java" if names[process] == "java" else "workers"] += peaks[process]
    return {kind: kilobytes >> 10 for kind, kilobytes in actual.items()}


# Converters.


def ours(reader: str, scratch: Path) -> Convert:
    from tableferry import convert

    spark = _session(scratch) if reader == "spark" else None

    def work(table: Path) -> None:
        report = convert.run([str(table)], spark, reader=convert.Reader(reader))
        if not report.ok:
            raise SystemExit(report.tables[0].error)

    return work


def native(suffix: str, settings: dict[str, str], scratch: Path) -> Convert:
    spark = _session(scratch)
    for key, value in settings.items():
        spark.conf.set(key, value)

    def work(table: Path) -> None:
        spark.sql(f"CONVERT TO DELTA parquet.`{table}` {suffix} PARTITIONED BY (day date)".replace("  ", " "))

    return work


def delta_rs(scratch: Path) -> Convert:
    from deltalake import Field, Schema, convert_to_deltalake
    from deltalake.schema import PrimitiveType

    # delta-rs doesn't infer partition columns from the paths.
    days = Schema([Field("day", PrimitiveType("date"))])
    return partial(convert_to_deltalake, partition_by=days, partition_strategy="hive")


def floor(scratch: Path) -> Convert:
    """Open every footer and write a commit of the usual size: the work that no converter can skip."""
    import pyarrow.parquet as pq

    def work(table: Path) -> None:
        count = 0
        for folder, _, files in os.walk(table):
            for file in files:
                pq.read_metadata(f"{folder}/{file}")
            count += len(files)
        log = table / "_delta_log"
        log.mkdir()
        (log / FIRST_COMMIT).write_bytes(b" " * COMMIT_BYTES_A_FILE * count)

    return work


def _session(scratch: Path) -> SparkSession:
    from tableferry.spark import session

    return session.resolve(scratch / "warehouse", say=lambda text: None)


CONTENDERS = {
    "process": Contender("tableferry", partial(ours, "process"), repeat=3),
    "spark-1": Contender("tableferry, footers by Spark on 1 core", partial(ours, "spark"), cores=1),
    "spark-2": Contender("tableferry, footers by Spark on 2 cores", partial(ours, "spark"), cores=2),
    "native": Contender("CONVERT TO DELTA", partial(native, "", DEFAULTS), cores=2),
    "native-bare": Contender(
        "CONVERT TO DELTA … NO STATISTICS", partial(native, "NO STATISTICS", DEFAULTS), cores=2
    ),
    "native-few": Contender("CONVERT TO DELTA, 2 snapshot partitions", partial(native, "", {}), cores=2),
    "native-few-bare": Contender(
        "CONVERT TO DELTA … NO STATISTICS, 2 snapshot partitions",
        partial(native, "NO STATISTICS", {}),
        cores=2,
    ),
    "delta-rs": Contender("delta-rs", delta_rs, repeat=3),
    "floor": Contender("lower bound", floor, repeat=3),
}


# Directories to convert.


def columns() -> pa.Table:
    """Return the rows of a large file, with a column of each type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = LARGE_ROWS
    ids = pa.array(range(count), pa.int64())
    prices = pc.multiply(pc.random(count, initializer=1), 1000.0)
    begin = datetime(2024, 1, 1)
    return pa.table(
        {
            "id": ids,
            "qty": pc.cast(pc.floor(pc.divide(prices, 100.0)), pa.int32()),
            "price": prices,
            "name": pc.binary_join_element_wise("item", pc.cast(ids, pa.string()), " "),
            "at": pc.cast(pc.add(ids, int(begin.timestamp()) * 1_000_000), pa.timestamp("us", "UTC")),
            "d": pa.array([begin.date() + timedelta(days=number % 100) for number in range(count)]),
            "amt": pc.cast(pc.round(prices, 2), pa.decimal128(12, 2)),
            "ok": pc.less(prices, 500.0),
        }
    )


def write_files(root: Path, total: int, rows: int, select_jobs: range) -> None:
    """Write the selected files of a directory."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    base = columns().slice(0, rows)
    days = max(FEWEST_DAYS, total // FILES_A_DAY)
    for number in select_jobs:
        day = root / f"day={date(2020, 1, 1) + timedelta(days=number % days)}"
        day.mkdir(parents=True, exist_ok=True)
        ids = pc.add(base["id"], number * rows)
        names = pc.binary_join_element_wise("item", pc.cast(ids, pa.string()), " ")
        table = base.set_column(0, "id", ids).set_column(3, "name", names)
        pq.write_table(table, day / f"part-{number:06}.parquet")


def made(cache: Path, count: int, rows: int) -> Path:
    """Return a directory of files, and create it unless the cache has it."""
    how = inspect.getsource(columns), inspect.getsource(write_files), count, rows, FILES_A_DAY, FEWEST_DAYS

    def write(unfinished: Path) -> None:
        chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
        with ProcessPoolExecutor() as pool:
            list(pool.map(partial(write_files, unfinished, count, rows), chunks))

    return cached(cache, str(count), how, write)


def shaped(cache: Path, shape: lake_shapes.Shape) -> Path:
    """Return a directory of files of a shape, and create it unless the cache has it."""
    how = inspect.getsource(lake_shapes), shape
    return cached(cache, "shape", how, partial(lake_shapes.write, shape))


def cached(cache: Path, name: str, how: object, write: Callable[[Path], None]) -> Path:
    folder = cache / f"{name}-{hashlib.sha256(repr(how).encode()).hexdigest()[:12]}"
    # A killed run leaves the directory under another name.
    for left in cache.glob(f"{folder.name}-*"):
        shutil.rmtree(left / "_delta_log", ignore_errors=True)
        left.rename(folder)
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        write(unfinished)
        unfinished.rename(folder)
    return folder


# Output.

# (slower, faster, goal): `faster` should be at least `goal` times as fast as `slower`.
GOALS = (
    ("native", "process", 10),
    ("native-few", "process", 10),
    ("delta-rs", "process", 1),
    ("spark-1", "spark-2", 1),
)

HEADING = (
    f"{'':<58}{'start':>8}{'first':>8}{'warm':>8}{'min':>8}{'max':>8}{'CPU':>8}  MB: Python, Java, workers"
)


def line(result: Measured) -> str:
    times = (result.start, result.first, result.warm, result.least, result.most, result.cpu)
    seconds = "".join(f"{time:>8.3f}" for time in times)
    return f"{CONTENDERS[result.contender].title:<58}{seconds}  {result.memory}"


def machine() -> str:
    versions = [
        f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark", "pyarrow", "deltalake")
    ]
    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}", *versions]
    return ", ".join([*parts, f"load {os.getloadavg()[0]:.1f}"])


def goals(measured: Sequence[Measured]) -> str:
    """Return the ratios of warm runs with small files, compared with `GOALS`."""
    warm = {(result.data, result.contender): result.warm for result in measured}
    verdicts = []
    for data in dict.fromkeys(result.data for result in measured if result.data != LARGE):
        for slower, faster, goal in GOALS:
            if (data, slower) in warm and (data, faster) in warm:
                ratio = warm[data, slower] / warm[data, faster]
                titles = CONTENDERS[faster].title, CONTENDERS[slower].title
                verdict = "holds" if ratio >= goal else "is missed"
                verdicts.append(
                    f"{data}: {titles[0]} is {ratio:.1f} times as fast as {titles[1]} ({goal}: {verdict})"
                )
    return "\n".join(verdicts)


def markdown(measured: Sequence[Measured]) -> str:
    """Return the table for docs/benchmarks.md: warm seconds, and first run and memory of the largest set."""
    sets = list(dict.fromkeys(result.data for result in measured))
    most = max((data for data in sets if data != LARGE), key=len, default=LARGE)
    results = {(result.contender, result.data): result for result in measured}
    heads = ["converter", *sets, f"first in a process, {most}", f"peak memory in MB, {most}"]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name in dict.fromkeys(result.contender for result in measured):
        last = results[name, most]
        warm = [f"{results[name, data].warm:.2f} s" for data in sets]
        rows.append([CONTENDERS[name].title, *warm, f"{last.first:.2f} s", last.memory])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def by_shape(measured: Sequence[Measured]) -> str:
    """Return the table of the shapes for docs/benchmarks.md: warm seconds, and CPU seconds."""
    names = list(dict.fromkeys(result.contender for result in measured))
    results = {(result.contender, result.data): result for result in measured}
    rows = [["files, columns, row groups", *(CONTENDERS[name].title for name in names)]]
    rows.append(["---", *["---:"] * len(names)])
    for data in dict.fromkeys(result.data for result in measured):
        found = [results[name, data] for name in names]
        cells = [f"{one.warm:.2f} s" + (f" ({one.cpu:.2f} s)" if one.cpu else "") for one in found]
        rows.append([data, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
