"""Test doubles and Java options for projects that use Tableferry."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tableferry.pipelines.steps import (
    DefineAppend,
    DefineAutoCdc,
    DefineSnapshots,
    DefineTable,
    DefineView,
    Definition,
)

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SMALL_TABLES = " ".join(
    (
        # The optimizing compiler and a concurrent collector cost a short process more than they save.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        # With its defaults Java discards compiled code, and collects the whole heap to enlarge it or to load
        # classes. The heap starts with an eighth of the memory, or all that Spark's driver may have.
        "-XX:ReservedCodeCacheSize=480m",
        "-XX:MetaspaceSize=1g",
        "-XX:InitialRAMPercentage=12.5",
        # Spark's jars need no verification. Their metastore throws and catches thousands of exceptions.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
        "-XX:MaxJavaStackTraceDepth=64",
        # Hadoop starts a process for each local file that it creates.
        "-Djdk.lang.Process.launchMechanism=VFORK",
        # Commits to the metastore don't wait for the disk.
        "-Dderby.system.durability=test",
        # Without Hadoop's native library, a rename by its FileContext starts eight `readlink` processes, and
        # each commit of Delta renames once, each micro-batch three times. These two rename by Hadoop's
        # FileSystem, which calls Java. Neither lets two processes write the same file.
        "-Dspark.delta.logStore.file.impl=io.delta.storage.LocalLogStore",
        f"-Dspark.sql.streaming.checkpointFileManagerClass={_CHECKPOINTS}",
    )
)
"""A value for `JDK_JAVA_OPTIONS` that lowers the CPU time of short sessions over small, disposable tables.

The results are the same. Large tables take longer, and a crash of the machine can damage the metastore.
"""


@dataclass
class RecordingEngine:
    """An engine that runs nothing; ``defined`` holds the definitions in order."""

    defined: list[Definition] = field(default_factory=list)

    def view(self, definition: DefineView) -> None:
        """Remember an input."""
        self.defined.append(definition)

    def table(self, definition: DefineTable) -> None:
        """Remember a streaming table."""
        self.defined.append(definition)

    def append(self, definition: DefineAppend) -> None:
        """Remember an append flow."""
        self.defined.append(definition)

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Remember an AUTO CDC flow."""
        self.defined.append(definition)

    def snapshots(self, definition: DefineSnapshots) -> None:
        """Remember the snapshots of a table."""
        self.defined.append(definition)


@dataclass
class FixedClock:
    """A clock that stands still until it is turned.

    Attributes:
        now: The time, in UTC.
    """

    now: datetime

    def __call__(self) -> datetime:
        """Give the time."""
        return self.now

    def turn(self, *, days: int = 0, minutes: int = 0) -> None:
        """Let time pass."""
        self.now += timedelta(days=days, minutes=minutes)
