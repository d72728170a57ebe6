"""Writes Parquet files with another writer: ``python parquet_writers.py NAME FOLDER``.

It runs in an environment where that writer is, so it imports nothing of this project. The data is what
writers are known to fail at: dictionaries of several chunks and pages, decimals of both signs, NaN.
"""

from __future__ import annotations

import datetime
import decimal
import sys
from typing import Any

ROWS = 60_000


def columns() -> dict[str, list[Any]]:
    """Return values of each kind."""
    rows = range(ROWS)
    first = datetime.datetime(2020, 1, 1)
    return {
        "id": list(rows),
        "number": [None if row % 11 == 0 else row - 1000 for row in rows],
        "float": [float("nan") if row == 500 else None if row % 13 == 0 else row / 2 for row in rows],
        "short": [None if row % 7 == 0 else f"v{row * 17 % 3000:05}" for row in rows],
        "long": [f"{'x' * 60}{row % 900:04}" for row in rows],
        "decimal": [decimal.Decimal(row % 2000 - 1000) / 4 for row in rows],
        "wide": [decimal.Decimal(row % 2000 - 1000) / 4 for row in rows],
        "day": [first.date() + datetime.timedelta(days=row % 900) for row in rows],
        "at": [first + datetime.timedelta(seconds=row) for row in rows],
        "nothing": [None for _ in rows],
    }


def pyarrow(folder: str) -> None:
    """Write with Arrow: plainly, and with dictionaries in several chunks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"decimal": pa.decimal128(9, 2), "wide": pa.decimal128(30, 2), "nothing": pa.string()}
    given = columns()
    table = pa.table({name: pa.array(values, types.get(name)) for name, values in given.items()})
    pq.write_table(table, f"{folder}/plain.parquet", row_group_size=ROWS // 2)
    chunks = [
        pa.array(given["short"][start : start + ROWS // 4]).dictionary_encode()
        for start in range(0, ROWS, ROWS // 4)
    ]
    encoded = pa.table({"short": pa.chunked_array(chunks)}).unify_dictionaries()
    pq.write_table(encoded, f"{folder}/dictionary.parquet", data_page_size=2000)


def polars(folder: str) -> None:
    """Write with Polars: as it does, with small pages, and with categories."""
    import polars as pl  # type: ignore[import-not-found, unused-ignore]

    schema = {"decimal": pl.Decimal(9, 2), "wide": pl.Decimal(30, 2), "nothing": pl.String}
    frame = pl.DataFrame(columns(), schema_overrides=schema)
    frame.write_parquet(f"{folder}/plain.parquet")
    frame.write_parquet(f"{folder}/pages.parquet", data_page_size=5000)
    categories = frame.with_columns(pl.col("short").cast(pl.Categorical))
    categories.write_parquet(f"{folder}/categories.parquet", data_page_size=5000)


def duckdb(folder: str) -> None:
    """Write with DuckDB."""
    import duckdb as duck  # type: ignore[import-not-found, unused-ignore]

    duck.sql(
        f"""COPY (
            SELECT i AS id, CASE WHEN i % 11 = 0 THEN NULL ELSE CAST(i - 1000 AS INT) END AS number,
                CASE WHEN i = 500 THEN 'nan'::DOUBLE WHEN i % 13 = 0 THEN NULL ELSE i / 2 END AS float,
                CASE WHEN i % 7 = 0 THEN NULL ELSE 'v' || (i * 17 % 3000) END AS short,
                repeat('x', 60) || (i % 900) AS long, CAST((i % 2000 - 1000) / 4 AS DECIMAL(9, 2)) AS decimal,
                CAST((i % 2000 - 1000) / 4 AS DECIMAL(30, 2)) AS wide, CAST(NULL AS VARCHAR) AS nothing
            FROM range({ROWS}) t(i)
        ) TO '{folder}/plain.parquet'"""
    )


def fastparquet(folder: str) -> None:
    """Write with fastparquet."""
    import fastparquet as fast  # type: ignore[import-not-found, unused-ignore]
    import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]

    given = columns()
    frame = pd.DataFrame(
        {
            "id": given["id"],
            "number": pd.array(given["number"], dtype="Int32"),
            "float": given["float"],
            "short": given["short"],
            "at": pd.to_datetime(given["at"]),
        }
    )
    frame["category"] = pd.Categorical(frame["short"])
    fast.write(f"{folder}/plain.parquet", frame, stats=True)


def deltalake(folder: str) -> None:
    """Write with delta-rs, by the Rust writer of Parquet."""
    import deltalake as delta
    import pyarrow as pa

    types = {"decimal": pa.decimal128(9, 2), "wide": pa.decimal128(30, 2), "nothing": pa.string()}
    given = {name: values for name, values in columns().items() if name != "at"}
    table = pa.table({name: pa.array(values, types.get(name)) for name, values in given.items()})
    delta.write_deltalake(folder, table)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
