"""The columns of a query that Spark computes differently each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.pipelines.handover.determinism import find_unstable_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = {
    "SELECT id, id + 1 AS next, upper('a') AS a FROM range(3)": (),
    "SELECT id, uuid() AS u, rand() AS r, monotonically_increasing_id() AS m FROM range(3)": ("u", "r", "m"),
    "SELECT current_timestamp() AS a, now() AS b, current_date AS c, localtimestamp() AS d, id "
    "FROM range(3)": ("a", "b", "c", "d"),
    "SELECT date_format(current_timestamp(), 'yyyy') AS y, unix_timestamp() AS u, current_user() AS w, "
    "to_date('2026-01-01') AS fixed FROM range(3)": ("y", "u", "w"),
    "SELECT id, copied, other FROM (SELECT id, loaded AS copied, id AS other FROM "
    "(SELECT id, uuid() AS loaded FROM range(3)))": ("copied",),
    "WITH w AS (SELECT id, uuid() AS u FROM range(3)) SELECT a.id, a.u AS u1, b.u AS u2 FROM w a JOIN w b "
    "ON a.id = b.id": ("u1", "u2"),
    "SELECT id, 'x' AS u FROM range(2) UNION ALL SELECT id, uuid() FROM range(3)": ("u",),
    "SELECT id % 2 AS parity, max(struct(id, u)) AS newest, count(*) AS n FROM (SELECT id, uuid() AS u FROM "
    "range(3)) GROUP BY id % 2": ("newest",),
    "SELECT id, e FROM (SELECT id, array(1, 2) AS a FROM range(3)) LATERAL VIEW explode(a) AS e": (),
    "SELECT id, e FROM (SELECT id, array(uuid()) AS a FROM range(3)) LATERAL VIEW explode(a) AS e": ("e",),
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM range(3)": (),
}


def test_columns_of_current_times_and_random_values_are_unstable(spark: SparkSession) -> None:
    found = {query: find_unstable_columns(spark.sql(query)) for query in QUERIES}
    assert found == QUERIES
