"""Test doubles and Java options for projects that use Tableferry."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tableferry.pipelines.model.steps import (
    DefineSnapshots,
    DefineTable,
    DefineView,
    Definition,
    PlannedFlow,
)

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SMALL_TABLES = " ".join(
    (
        # In a short process, the optimizing compiler and a concurrent collector take longer than they save.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        # By default, Java discards compiled code, and runs a full collection to enlarge the heap or to load
        # classes. The initial heap is an eighth of the machine's memory, or the limit of Spark's driver.
        "-XX:ReservedCodeCacheSize=480m",
        "-XX:MetaspaceSize=1g",
        "-XX:InitialRAMPercentage=12.5",
        # Spark's jars need no verification. The metastore throws and catches thousands of exceptions.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
        "-XX:MaxJavaStackTraceDepth=64",
        # Hadoop starts a process for each local file that it creates.
        "-Djdk.lang.Process.launchMechanism=VFORK",
        # Commits to the metastore don't wait for the disk.
        "-Dderby.system.durability=test",
        # Without Hadoop's native library, a rename through FileContext starts eight `readlink` processes.
        # Each Delta commit renames one file, each micro-batch three. These two classes rename through
        # Hadoop's FileSystem, which calls Java. Neither allows two processes to write the same file.
        "-Dspark.delta.logStore.file.impl=io.delta.storage.LocalLogStore",
        f"-Dspark.sql.streaming.checkpointFileManagerClass={_CHECKPOINTS}",
    )
)
"""A value for `JDK_JAVA_OPTIONS` that lowers the CPU time of short sessions over small, disposable tables.

The results are the same. Large tables take longer, and a crash of the machine can damage the metastore.
"""


@dataclass
class RecordingEngine:
    """An engine that records the definitions in ``defined``, in order, and runs nothing."""

    defined: list[Definition] = field(default_factory=list)

    def define_view(self, definition: DefineView) -> None:
        """Record an input."""
        self.defined.append(definition)

    def define_table(self, definition: DefineTable) -> None:
        """Record a streaming table."""
        self.defined.append(definition)

    def define_flow(self, flow: PlannedFlow) -> None:
        """Record an append flow or an AUTO CDC flow."""
        self.defined.append(flow)

    def define_snapshots(self, definition: DefineSnapshots) -> None:
        """Record the snapshots of a table."""
        self.defined.append(definition)


@dataclass
class FixedClock:
    """A clock that changes only when `turn` is called.

    Attributes:
        now: The current time, in UTC.
    """

    now: datetime

    def __call__(self) -> datetime:
        """Return the current time."""
        return self.now

    def turn(self, *, days: int = 0, minutes: int = 0) -> None:
        """Advance the time."""
        self.now += timedelta(days=days, minutes=minutes)
