"""Create the example's tables: two feeds, and the two tables that the old jobs write from them.

As a program: load.py FOLDER SCHEMA ROWS, where ROWS is `history` or `new`, as in the files' first column.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession, functions

FEEDS = {
    "orders_feed": (
        "order_id BIGINT, customer_id BIGINT, ordered_at TIMESTAMP, product STRING, quantity INT, "
        "amount DECIMAL(10, 2)"
    ),
    "customer_changes": "customer_id BIGINT, name STRING, city STRING, event STRING, changed_at TIMESTAMP",
}

# The old jobs, which the migration retires: each writes a table from a feed.
JOBS = {
    "orders_legacy": "SELECT * FROM {schema}.orders_feed",
    "customers_legacy": """
        SELECT customer_id, name, city, changed_at AS valid_from, next_change AS valid_to
        FROM (
            SELECT *, lead(changed_at) OVER (PARTITION BY customer_id ORDER BY changed_at) AS next_change
            FROM {schema}.customer_changes
        )
        WHERE event = 'saved'
    """,
}


def load(spark: SparkSession, folder: Path, schema: str, rows: str) -> None:
    """Append a folder's rows to the feeds, and run the old jobs once; a second call changes nothing.

    Args:
        spark: Where the tables are.
        folder: The folder of this file.
        schema: The schema of the tables, with its catalog.
        rows: `history`, or `new`.
    """
    schema = ".".join(f"`{part}`" for part in schema.split("."))
    for feed, columns in FEEDS.items():
        spark.sql(f"CREATE TABLE IF NOT EXISTS {schema}.{feed} ({columns}) USING delta")
        lines = (folder / f"{feed}.csv").read_text(encoding="utf-8").splitlines()
        chosen = [line.removeprefix(f"{rows},") for line in lines if line.startswith(f"{rows},")]
        line = functions.explode(functions.split(functions.lit("\n".join(chosen)), "\n"))
        row = functions.from_csv("line", columns)
        arriving = spark.range(1).select(line.alias("line")).select(row.alias("row")).select("row.*")
        new = arriving.exceptAll(spark.table(f"{schema}.{feed}"))
        # An empty commit would be taken for news.
        if not new.isEmpty():
            new.writeTo(f"{schema}.{feed}").append()
    for table, job in JOBS.items():
        spark.sql(f"CREATE TABLE IF NOT EXISTS {schema}.{table} USING delta AS {job.format(schema=schema)}")


if __name__ == "__main__":
    load(SparkSession.builder.getOrCreate(), Path(sys.argv[1]), *sys.argv[2:])
