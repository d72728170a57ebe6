"""Count syncs that succeed while another job replaces files, and check each version against the folder.

A thread removes a file of the folder and writes another, many times a second, while syncs run. Each version
is compared with all states of the folder since its sync began.

python benchmarks/sync.py --files 3000 --per-second 20 --syncs 100
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from tableferry import convert

LOOP = 10_000_000


class Replacer:
    """Replaces files of a folder, and records its content after each change."""

    def __init__(self, folder: Path, files: int, per_second: float) -> None:
        self.folder, self.seconds = folder, 1 / per_second
        self.numbers = count(files)
        self.present = [f"day={number % 10}/{number}.parquet" for number in range(files)]
        self.moments = [frozenset(self.present)]
        self.replaced = 0
        self.ended = threading.Event()
        for name in self.present:
            self.write(name)

    def write(self, name: str) -> None:
        """Write a file as Spark's jobs do: under a hidden name, and then under its own."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f"_{path.name}")
        pq.write_table(pa.table({"id": [1], "name": ["a"]}), hidden)
        hidden.rename(path)

    def run(self) -> None:
        """Replace files until it is ended."""
        chance, due = random.Random(5), time.monotonic()
        while not self.ended.is_set():
            old = self.present.pop(chance.randrange(len(self.present)))
            (self.folder / old).unlink()
            self.moments.append(frozenset(self.present))
            number = next(self.numbers)
            new = f"day={number % 10}/{number}.parquet"
            self.write(new)
            self.present.append(new)
            self.moments.append(frozenset(self.present))
            self.replaced += 1
            due += self.seconds
            self.ended.wait(max(0.0, due - time.monotonic()))


def main() -> None:
    """Run the syncs, and print how they ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--per-second", type=float, default=20)
    parser.add_argument("--syncs", type=int, default=100)
    arguments = parser.parse_args()
    started = time.process_time()
    for number in range(LOOP):
        number * 3
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
    print(f"{machine}, c = {time.process_time() - started:.2f}")
    folder = Path(tempfile.mkdtemp(prefix="tableferry-bench-"))
    try:
        measure(folder / "t", arguments.files, arguments.per_second, arguments.syncs)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, files: int, per_second: float, syncs: int) -> None:
    replacer = Replacer(folder, files, per_second)
    assert convert.run([str(folder)]).ok
    thread = threading.Thread(target=replacer.run)
    thread.start()
    seconds, errors, strangers, started = [], [], 0, time.monotonic()
    try:
        for _ in range(syncs):
            first, began = len(replacer.moments) - 1, time.monotonic()
            [table] = convert.sync([str(folder)]).tables
            seconds.append(time.monotonic() - began)
            errors += [table.error] if table.error else []
            names = {
                str(Path(uri).relative_to(folder)) for uri in deltalake.DeltaTable(str(folder)).file_uris()
            }
            strangers += not table.error and names not in replacer.moments[first:]
    finally:
        replacer.ended.set()
        thread.join()
    rate = replacer.replaced / (time.monotonic() - started)
    print(f"{files:,} files, {rate:.1f} of them replaced per second")
    median = sorted(seconds)[len(seconds) // 2]
    print(f"{syncs - len(errors)} of {syncs} syncs succeeded, in {median:.2f} s (median)")
    print(f"{strangers} versions differ from every content of the folder during their sync")
    for error in sorted({str(error) for error in errors}):
        print(f"  {error}")


if __name__ == "__main__":
    main()
