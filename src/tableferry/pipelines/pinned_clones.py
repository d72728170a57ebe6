"""The pinned clones of legacy tables: their creation, with an estimate of its duration, and their removal."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tableferry.amounts import counted, duration, size
from tableferry.errors import TableError
from tableferry.pipelines.model.plan import TargetPlan, pinned_clone_name
from tableferry.pipelines.model.target_state import PinnedCopy
from tableferry.progress import task
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.driver import in_process, track_jobs
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.pipelines.engines.performer import Runner
    from tableferry.pipelines.planning.project import OpenedProject

_log = logging.getLogger(__name__)

_NO_SUCH_SYNTAX = "PARSE_SYNTAX_ERROR"

# AWS counts on 85 to 90 MB/s for each concurrent request (whitepaper "Optimizing Amazon S3 Performance",
# "Horizontal Scaling and Request Parallelization"), and a clone reads and writes each file. Not measured on
# Databricks.
_BYTES_PER_SECOND_AND_CORE = 40_000_000
# Spark Connect doesn't report the cluster's cores.
_ASSUMED_CORES = 8


@dataclass(frozen=True)
class CloneEstimate:
    """The size of a table's newest version, and how long a deep clone of it takes.

    Attributes:
        bytes: The sum of the sizes of the data files.
        files: The number of data files.
        cores: The number of files that Spark copies at a time.
        assumed: Whether ``cores`` is an assumption.
    """

    bytes: int
    files: int
    cores: int
    assumed: bool = False

    @property
    def seconds(self) -> float:
        """The estimated duration of the clone; fewer files than cores leave cores idle."""
        return self.bytes / (_BYTES_PER_SECOND_AND_CORE * max(1, min(self.cores, self.files)))

    def __str__(self) -> str:
        """Return the figures: ``1.2 TB in 8,000 files, estimated 31 min 15 s on 16 cores``."""
        seconds = duration(self.seconds) if self.seconds >= 60 else "less than a minute"
        cores = f"{counted(self.cores, 'core')}{' (assumed)' if self.assumed else ''}"
        return f"{size(self.bytes)} in {counted(self.files, 'file')}, estimated {seconds} on {cores}"


def estimate_pinned_clone(target: TargetPlan, opened: OpenedProject) -> CloneEstimate | None:
    """Estimate the deep clone that the next preparation of a target creates; None if it creates none."""
    return _estimate(target, opened) if needs_clone(target, opened) else None


def needs_clone(target: TargetPlan, opened: OpenedProject) -> bool:
    """Return whether a target's copy streams a pinned clone that doesn't exist."""
    return target.clone is not None and not catalog.exists(opened.spark, target.clone)


def _estimate(target: TargetPlan, opened: OpenedProject) -> CloneEstimate | None:
    """Return the estimate for a deep clone; None outside Databricks, where a shallow one copies no file."""
    if not (opened.pipeline and opened.pipeline.kind == "databricks"):
        return None
    assert target.migration_start is not None
    spark, table = opened.spark, target.migration_start.copy.table
    [detail] = spark.sql(f"DESCRIBE DETAIL {table.sql}").select("sizeInBytes", "numFiles").collect()
    local = in_process(spark)
    cores = spark.sparkContext.defaultParallelism if local else _ASSUMED_CORES
    return CloneEstimate(detail["sizeInBytes"] or 0, detail["numFiles"] or 0, cores, assumed=not local)


def create_pinned_clone(target: TargetPlan, clone: TableName, opened: OpenedProject, runner: Runner) -> None:
    """Clone the legacy table at the pinned version, unless the clone exists.

    The log states the size and the estimated duration of a deep clone before it starts.

    Raises:
        TableError: The clone can't be created, or it is of another version.
    """
    assert target.migration_start is not None
    spark, copy = opened.spark, target.migration_start.copy
    runner.before_effect(f"cloning {copy.table}@{copy.version} as {clone}")
    optional = " or set tableMigrationDetails.pinnedClone to false" if target.dataflow.target.cdc else ""
    with explaining(
        "CLONE_NOT_CREATED",
        target=target.target,
        table=copy.table,
        version=copy.version,
        clone=clone,
        optional=optional,
    ):
        if needs_clone(target, opened):
            estimate = _estimate(target, opened)
            step = f"clone {copy.table}@{copy.version} as {clone}" + (f" ({estimate})" if estimate else "")
            with task(_log, step, table=target.target) as running, track_jobs(spark, running):
                _create_clone(spark, clone, copy)
        cloned = _read_cloned_version(spark, clone)
    if cloned not in (None, copy.version):
        raise TableError(
            "CLONE_OF_OTHER_VERSION", clone=clone, cloned=cloned, target=target.target, version=copy.version
        )


def _create_clone(spark: SparkSession, clone: TableName, copy: PinnedCopy) -> None:
    """Create a deep clone, or a shallow one where Delta lacks DEEP CLONE: outside Databricks.

    VACUUM of the legacy table can't delete a deep clone's files. Its source may be in another catalog.
    """
    create, table, version = f"CREATE TABLE IF NOT EXISTS {clone.sql}", copy.table, copy.version
    try:
        spark.sql(f"{create} DEEP CLONE {table.sql} VERSION AS OF {version}")
    except SPARK_ERRORS as error:
        if catalog.condition(error) != _NO_SUCH_SYNTAX:
            raise
        spark.sql(f"{create} SHALLOW CLONE {table.sql} VERSION AS OF {version}")


def _read_cloned_version(spark: SparkSession, clone: TableName) -> int | None:
    """Return the version that a clone was created from; None if its history has lost that commit."""
    commits = spark.sql(f"DESCRIBE HISTORY {clone.sql}").where("operation = 'CLONE'")
    versions = [row["operationParameters"].get("sourceVersion") for row in commits.collect()]
    return max((int(version) for version in versions if version is not None), default=None)


def drop_pinned_clone(target: TargetPlan, opened: OpenedProject) -> None:
    """Drop the clone of a target's legacy table, which exists only in a declarative pipeline."""
    if opened.pipeline is not None:
        drop_clone(opened.spark, pinned_clone_name(target.target))


def drop_clone(spark: SparkSession, clone: TableName) -> None:
    """Drop a pinned clone if it exists."""
    with explaining("CLONE_NOT_DROPPED", clone=clone):
        spark.sql(f"DROP TABLE IF EXISTS {clone.sql}")
