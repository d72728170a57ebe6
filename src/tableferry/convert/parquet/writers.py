"""Which statistics of which writers are known to be right: of any other only the number of rows is taken.

A wrong bound or a wrong count of nulls makes readers skip a file that has rows for them, without a word.
Known wrong:

- **parquet-mr before 1.10** compared values of bytes as signed ones (PARQUET-251, PARQUET-297, PARQUET-686);
  then, and from 1.18 on (PARQUET-2249), its bounds of floating-point numbers don't show a NaN. From 1.10 to
  1.17 it orders NaN above all other values (``PrimitiveComparator``, ``DoubleStatistics.updateStats``).
- **Arrow before 11.0** took the bounds and the nulls of a dictionary of strings from its first chunk alone
  (tried: 10.0.1 says ``aa`` to ``sean`` where the file has ``zzz``, and 10,000 nulls where it has 40,000),
  and before 5.0 it counted none (ARROW-12513).
- **Polars** counts the nulls of a dictionary of strings once for each page (tried: 1.40 and 1.44 say 544,205
  of 17,555), and from 1.25 to 1.37 it took decimals stored as bytes for unsigned ones; the name that these
  have in footers has no version, that of 2.1 has.
- **DuckDB before 2.0** doesn't say in which order its bounds are; those of strings don't count then.
- **arrow-go** counts nulls below zero (apache/arrow-go 489); **arrow2** counted those of the dictionary.

What Athena calls itself isn't published: only as Trino, which its version 3 is built on, it counts.

All others known, Arrow's among them, leave NaN out of bounds, while Spark orders it above infinity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_NAMED = re.compile(r"(?P<name>.+?)(?: version \D*?(?P<major>\d+)(?:\.(?P<minor>\d+))?.*)?", re.DOTALL)


class Trust(NamedTuple):
    """What a file's writer is known to get right.

    Attributes:
        numbers: Bounds of what is stored as whole numbers, and the nulls of all that isn't stored as bytes.
        floats: Bounds of float and double show a NaN.
        strings: Bounds of strings.
        decimals: Bounds of decimals that are stored as bytes.
        nulls: Counts of nulls of what is stored as bytes.
        ancient: Spark reads dates before 1582 and instants before 1900 as they are stored. It doesn't where
            the footer says that they follow the hybrid calendar (`DataSourceUtils.datetimeRebaseSpec`).
            parquet-mr without Spark's version may be Hive, which wrote that calendar too.
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
    """Say what to believe of a file, by its writer, which may be empty, and its footer's keys and values."""
    believed = _writer_trust(created_by, metadata)
    # Spark's reader goes by these keys alone, and other writers copy them from the file that they read.
    return believed._replace(ancient=False) if hybrid(metadata) else believed


def _writer_trust(created_by: str, metadata: Mapping[bytes, bytes]) -> Trust:
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


# The oldest that were tried: before, only what all writers get right is taken.
_SINCE = {"parquet-rs": (53, 0), "delta-rs": (1, 0), "DuckDB": (2, 0), "Polars (python)": (2, 1)}


def hybrid(metadata: Mapping[bytes, bytes]) -> bool:
    """Say whether Spark wrote a file's dates by the hybrid calendar (Julian until 1582), as Spark 2 did."""
    spark = _spark(metadata)
    return spark is not None and (spark < 3 or _LEGACY in metadata)


_LEGACY = b"org.apache.spark.legacyDateTime"


def _spark(metadata: Mapping[bytes, bytes]) -> int | None:
    """Return the major version of the Spark that wrote a file; None if none did."""
    major = metadata.get(b"org.apache.spark.version", b"").partition(b".")[0]
    return int(major) if major.isdigit() else None
