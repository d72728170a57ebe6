"""The batches of streaming CDC flows, folded here where Spark is in this process, else by a server's Python.

Spark Connect carries a ``foreachBatch`` function to its server. All that it needs of tableferry goes with it,
so that the server needs none; but its Python must be of the same minor version as this one.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql import functions as F

import tableferry
from tableferry.errors import Refused, TableError, TableferryError, first_line
from tableferry.errors.catalogue import conditions
from tableferry.pipelines import cdc
from tableferry.pipelines.flows import CdcSettings, Expectation, Flow
from tableferry.pipelines.guard import Guard
from tableferry.pipelines.key_ranges import Sizes
from tableferry.pipelines.rows import countable, counts_of, judged
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Stands before an error that a server's Python raised.
_CARRIED = "Tableferry's error: "

Fold = Callable[["DataFrame", int], None]


def folding(
    spark: SparkSession,
    target: TableName,
    settings: CdcSettings,
    before: Callable[[str], None],
    guard: Guard,
    raised: list[BaseException],
    rules: tuple[Expectation, ...] = (),
    broken: Counter[str] | None = None,
) -> Fold:
    """Return a function for ``foreachBatch`` that folds a feed's rows into a target.

    ``before`` is as for `cdc.apply`, and isn't called where a server folds, but ``guard`` in its place;
    ``raised`` takes what a batch raises in this process (see `raised_there` for a server's). ``rules`` are
    those that nothing has applied yet, which is only possible here; ``broken`` takes how many rows break
    them. A stream itself can't count them, for a merge looks at its batch more than once.
    """
    if in_process(spark):
        return _folding_here(target, settings, before, raised, rules, broken)
    _carry()
    return _folding_there(target, settings, guard)


def _folding_here(
    target: TableName,
    settings: CdcSettings,
    before: Callable[[str], None],
    raised: list[BaseException],
    rules: tuple[Expectation, ...],
    broken: Counter[str] | None,
) -> Fold:
    sizes = Sizes()

    def fold(batch: DataFrame, number: int) -> None:
        try:
            if broken is not None and countable(rules):
                broken.update({name: count for name, count in counts_of(batch, rules).items() if count})
            batch = judged(batch, rules)
            events = cdc.feed_events(batch, settings)
            cdc.apply(events, target, settings, before=before, number=number, sizes=sizes)
        except BaseException as error:
            raised.append(error)
            raise

    return fold


def _folding_there(target: TableName, settings: CdcSettings, guard: Guard) -> Fold:
    """Return a function that raises an error of the user's as JSON; `raised_there` reads it."""
    sizes = Sizes()

    def fold(batch: DataFrame, number: int) -> None:
        try:
            events, spark = cdc.feed_events(batch, settings), batch.sparkSession
            cdc.apply(events, target, settings, before=lambda _: guard(spark), number=number, sizes=sizes)
        except TableferryError as error:
            # In one line without a cause, because only a printed traceback comes back.
            raise RuntimeError(_CARRIED + json.dumps(error.to_dict())) from None
        except SPARK_ERRORS as error:
            raise RuntimeError(first_line(error)) from None

    return fold


def raised_there(error: Exception) -> TableError | None:
    """Return what a batch raised on a server for the user to fix, from the query's own error."""
    text = str(error)
    if _CARRIED not in text:
        return None
    data, _ = json.JSONDecoder().raw_decode(text.partition(_CARRIED)[2])
    return TableError.from_dict(data)


def require(spark: SparkSession, flow: Flow) -> None:
    """Make sure that a streaming CDC flow's batches can be folded where they will be; writes nothing.

    Raises:
        Refused: The server's Python can't.
    """
    if in_process(spark):
        return
    _carry()
    ready = F.udf(_ready, "boolean", useArrow=False)
    try:
        spark.range(1).select(ready("id")).collect()
    except SPARK_ERRORS as error:
        reason = first_line(error).split(". ")[0]
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Refused(
            "SERVER_CANNOT_FOLD",
            location=flow.location,
            flow=flow.name,
            target=flow.target,
            reason=reason,
            python=python,
        ) from error


def _ready(_: int) -> bool:
    # A batch asks Spark through the client in the server's Python, which needs more packages than pyspark.
    import pyspark.sql.connect.session  # noqa: F401

    return True


def _carry() -> None:
    """Let Spark Connect send this package's functions themselves, not their names."""
    # The server doesn't have the file of the catalogue, so its content goes with the functions.
    conditions()
    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value  # it has no annotations
    register(tableferry)
