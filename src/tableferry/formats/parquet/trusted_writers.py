"""List which statistics of a Parquet file are correct, by the program that wrote the file.

A wrong bound or null count makes readers skip a file with matching rows, without an error. From an unknown
writer, only the number of rows is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_NAMED = re.compile(r"(?P<name>.+?)(?: version \D*?(?P<major>\d+)(?:\.(?P<minor>\d+))?.*)?", re.DOTALL)


class Trust(NamedTuple):
    """The statistics of a file that are correct. "Bytes" are BINARY and FIXED_LEN_BYTE_ARRAY.

    Attributes:
        numbers: Bounds of numbers, and null counts of all columns, that aren't stored as bytes.
        floats: Bounds of FLOAT and DOUBLE show a NaN.
        strings: Bounds of strings.
        decimals: Bounds of decimals that are stored as bytes.
        nulls: Null counts of columns that are stored as bytes.
        ancient: Spark reads dates before 1582 and instants before 1900 as they are stored. It shifts them if
            the footer states the hybrid calendar (`DataSourceUtils.datetimeRebaseSpec`). parquet-mr without
            Spark's version may be Hive, which used that calendar too.
    """

    numbers: bool = True
    floats: bool = False
    strings: bool = False
    decimals: bool = False
    nulls: bool = False
    ancient: bool = True


_NOTHING = Trust(numbers=False)
_ALL_BUT_FLOATS = Trust(strings=True, decimals=True, nulls=True)


def trust(created_by: str, metadata: Mapping[bytes, bytes]) -> Trust:
    """Return which statistics of a file are correct, by its writer's name and its key-value metadata.

    ``created_by`` may be empty.
    """
    believed = _writer_trust(created_by, metadata)
    # Spark's reader checks only these keys, and other writers copy them from the file that they read.
    return believed._replace(ancient=False) if hybrid(metadata) else believed


def _writer_trust(created_by: str, metadata: Mapping[bytes, bytes]) -> Trust:
    """Return which statistics of a file are correct, by its writer's name and version.

    Known errors:

    - parquet-mr before 1.10 compared bytes as signed values (PARQUET-251, PARQUET-297, PARQUET-686). Its
      bounds of floats don't show a NaN, and neither do those from 1.18 on (PARQUET-2249). Versions 1.10 to
      1.17 order NaN above all other values (``PrimitiveComparator``, ``DoubleStatistics.updateStats``).
    - Arrow before 11.0 took the bounds and null counts of a dictionary of strings from its first chunk only.
      Tested: 10.0.1 states ``aa`` to ``sean`` for a file with ``zzz``, and 10,000 instead of 40,000 nulls.
      Before 5.0 it counted no nulls of dictionaries (ARROW-12513).
    - Polars counts the nulls of a dictionary of strings once for each page. Tested: 1.40 and 1.44 state
      544,205 instead of 17,555 nulls. Versions 1.25 to 1.37 compared decimals stored as bytes as unsigned
      values. The writer's name of these versions has no version number; that of 2.1 has one.
    - DuckDB before 2.0 doesn't state the order of its bounds, so its bounds of strings aren't used.
    - arrow-go states negative null counts (apache/arrow-go 489). arrow2 counted the nulls of the dictionary.

    Athena's writer name isn't published. Its files count only under the name of Trino, on which Athena 3 is
    based. All other known writers, including Arrow, leave NaN out of bounds, while Spark orders NaN above
    infinity.
    """
    named = _NAMED.fullmatch(created_by)
    if named is None:
        return _NOTHING
    version = (int(named["major"] or 0), int(named["minor"] or 0))
    match named["name"]:
        case "parquet-mr":
            modern = version >= (1, 10)
            return Trust(
                floats=modern and version < (1, 18),
                strings=modern,
                decimals=modern,
                nulls=True,
                ancient=_spark(metadata) is not None,
            )
        case "parquet-mr-trino" | "parquet-mr compatible Photon":
            return _ALL_BUT_FLOATS._replace(ancient=_spark(metadata) is not None)
        case "parquet-cpp-arrow":
            return _ALL_BUT_FLOATS if version >= (11, 0) else Trust()
        case "parquet-rs" | "delta-rs" | "DuckDB" | "Polars (python)" as name:
            return _ALL_BUT_FLOATS if version >= _SINCE[name] else Trust()
        case "Polars" | "fastparquet-python":
            return Trust()
        case _:
            return _NOTHING


# The oldest versions that were tested; older versions have only the statistics that all writers get right.
_SINCE = {"parquet-rs": (53, 0), "delta-rs": (1, 0), "DuckDB": (2, 0), "Polars (python)": (2, 1)}


def hybrid(metadata: Mapping[bytes, bytes]) -> bool:
    """Return whether Spark wrote the file in the hybrid calendar (Julian until 1582), as Spark 2 did."""
    spark = _spark(metadata)
    return spark is not None and (spark < 3 or _LEGACY in metadata)


_LEGACY = b"org.apache.spark.legacyDateTime"


def _spark(metadata: Mapping[bytes, bytes]) -> int | None:
    """Return the major version of the Spark that wrote a file; None if another program wrote it."""
    major = metadata.get(b"org.apache.spark.version", b"").partition(b".")[0]
    return int(major) if major.isdigit() else None
