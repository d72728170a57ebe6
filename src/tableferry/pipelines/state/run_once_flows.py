"""Writes to Delta tables that happen once, whoever does them again, and however late.

A Delta table keeps, for each writer's id, the newest version that this writer has committed. A write that
names an id and a version that isn't newer changes nothing, and of two at once one fails. So a run that slept
before a write, while another run did it, or refreshed the table in full, changes nothing when it wakes.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tableferry.errors import Busy
from tableferry.spark.tables import TableName

# Beyond every version that a writer gives: a stream counts its batches.
_ENDED = 2**62


def run_once(owner: TableName, flow: str, generation: int) -> str:
    """Name the writer of a flow that runs a single time in each generation of its target."""
    return f"tableferry:{owner.key}:{flow}:{generation}"


def options(writer: str, version: int) -> dict[str, str]:
    """Return the options of a write that happens once; the table's history shows its writer."""
    return {"txnAppId": writer, "txnVersion": str(version), "userMetadata": writer}


def is_run_once(user_metadata: str, owner: TableName) -> bool:
    """Return whether a commit's metadata names a run-once writer of a target."""
    return user_metadata.startswith(f"tableferry:{owner.key}:")


def end(spark: SparkSession, table: TableName, writer: str) -> None:
    """Let nothing come into a table any more that is written under an id."""
    nothing = spark.table(table.sql).where("false")
    nothing.write.format("delta").mode("append").options(**options(writer, _ENDED)).saveAsTable(table.sql)


def interrupt(spark: SparkSession, table: TableName, generation: int) -> None:
    """Let no write into a table come through that has begun.

    An append without an id of its own conflicts with nothing but a change of what the table is.
    """
    spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('tableferry.generation' = '{generation}')")


def empty(spark: SparkSession, table: TableName, owner: TableName, generation: int) -> None:
    """Drop a table's rows, once for each generation of the target that it belongs to.

    Raises:
        Busy: Another run has done it, and has filled the table since.
    """
    nothing = spark.table(table.sql).where("false")
    once = options(f"tableferry:{owner.key}:reset", generation)
    # A session may be set to overwrite only the partitions that rows come for.
    nothing.writeTo(table.sql).options(**once, partitionOverwriteMode="static").overwrite(F.lit(True))
    if spark.table(table.sql).take(1):
        raise Busy("REFRESHED_BY_ANOTHER_RUN", target=table)
