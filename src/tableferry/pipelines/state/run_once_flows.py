"""Write to a Delta table at most once, even if several runs try, and a suspended run resumes much later.

Delta's idempotent writes do this: the table's transaction (``txn``) keeps the newest version of each
``txnAppId``. A write with the same id and no newer ``txnVersion`` is skipped, and one of two concurrent
writes fails. So a run that was suspended before a write changes nothing after another run wrote or made a
full refresh.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tableferry.errors import Busy
from tableferry.spark.tables import TableName

# Higher than every version that a writer uses; a stream uses its batch number.
_BLOCKED = 2**62


def build_writer_id(owner: TableName, flow: str, generation: int) -> str:
    """Return the ``txnAppId`` of a flow that runs once in each generation of its target."""
    return f"tableferry:{owner.key}:{flow}:{generation}"


def build_write_options(writer: str, version: int) -> dict[str, str]:
    """Return the options of an idempotent write; the table's history shows the writer."""
    return {"txnAppId": writer, "txnVersion": str(version), "userMetadata": writer}


def is_run_once_commit(user_metadata: str, owner: TableName) -> bool:
    """Return whether a run-once flow of a target made a commit, by the commit's user metadata."""
    return user_metadata.startswith(f"tableferry:{owner.key}:")


def block_writer(spark: SparkSession, table: TableName, writer: str) -> None:
    """Make a table skip every later write of one writer, also of a run that was suspended.

    A writer is a ``txnAppId``: the id of a run-once flow, or the query id of a stream.
    """
    nothing = spark.table(table.sql).where("false")
    nothing.write.format("delta").mode("append").options(**build_write_options(writer, _BLOCKED)).saveAsTable(
        table.sql
    )


def fail_pending_writes(spark: SparkSession, table: TableName, generation: int) -> None:
    """Make pending writes to a table fail, by a change of its metadata.

    Delta has no other conflict for an append without an id.
    """
    spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('tableferry.generation' = '{generation}')")


def delete_rows_once(spark: SparkSession, table: TableName, owner: TableName, generation: int) -> None:
    """Delete a table's rows, once in each generation of the target that it belongs to.

    Raises:
        Busy: Another run has deleted the rows and filled the table since.
    """
    nothing = spark.table(table.sql).where("false")
    once = build_write_options(f"tableferry:{owner.key}:reset", generation)
    # The session may have dynamic partition overwrite, which would delete no rows here.
    nothing.writeTo(table.sql).options(**once, partitionOverwriteMode="static").overwrite(F.lit(True))
    if spark.table(table.sql).take(1):
        raise Busy("REFRESHED_BY_ANOTHER_RUN", target=table)
