"""What AUTO CDC makes of a log of events: pure functions from DataFrame to DataFrame.

The log has the data columns and those named here; the rows that come out have the target's columns and
`ALIVE`: True for a row that the target must have, False for one that it must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tableferry.pipelines.ddl import comparable, conform
from tableferry.pipelines.flows import CdcSettings
from tableferry.quoting import quote

SEQUENCE = "__sequence"
OPERATION = "__operation"
EXACT = "__exact"
RANK = "__rank"
EVENT_COLUMNS = (SEQUENCE, OPERATION, EXACT)
START = "__START_AT"
END = "__END_AT"
ALIVE = "__alive"
UPSERT, DELETE, TRUNCATE = "upsert", "delete", "truncate"

_TRUNCATED = "__truncated"
_OPENS = "__opens"
_NEXT = "__next"
_BEFORE = "__before"


def names(columns: Sequence[str]) -> list[Column]:
    """Return columns by their plain names."""
    return [F.col(quote(name)) for name in columns]


def same(left: str, right: str, columns: Sequence[str]) -> Column:
    """Return the null-safe equality of columns of two aliased frames."""
    return F.expr(" AND ".join(f"{left}.{quote(name)} <=> {right}.{quote(name)}" for name in columns))


@dataclass(frozen=True)
class Fold:
    """The settings of a target together with the columns of its log."""

    settings: CdcSettings
    log: StructType

    @property
    def keys(self) -> list[str]:
        """The key columns, as the log spells them."""
        spelled = {name.lower(): name for name in self.log.names}
        return [spelled[key.lower()] for key in self.settings.keys]

    @property
    def data(self) -> list[StructField]:
        """The data columns that aren't keys."""
        others = {*self.keys, *EVENT_COLUMNS, RANK}
        return [field for field in self.log.fields if field.name not in others]

    @property
    def sequenced(self) -> bool:
        """Whether any event so far had a sequence; without one the log has no such column."""
        return SEQUENCE in self.log.names

    @property
    def per_sequence(self) -> bool:
        """Whether every event of a key counts; else the newest does, tombstones included."""
        return self.settings.scd_type == 2 or self.settings.ignore_null_updates

    @property
    def truncates(self) -> bool:
        """Whether events may be truncates."""
        return self.settings.scd_type == 1 and bool(self.settings.apply_as_truncates)

    @property
    def tracked(self) -> list[StructField]:
        """The data columns whose change opens a new interval."""
        only = {name.lower() for name in self.settings.track_history_column_list}
        but = {name.lower() for name in self.settings.track_history_except_column_list}
        return [
            field
            for field in self.data
            if (not only or field.name.lower() in only) and field.name.lower() not in but
        ]

    def sequence(self, frame: DataFrame) -> DataFrame:
        """Give a frame of the log's rows the sequence column where the log lacks it."""
        return frame if SEQUENCE in frame.columns else frame.withColumn(SEQUENCE, F.lit(None).cast("int"))

    def logged(self, events: DataFrame) -> DataFrame:
        """Return events in the log's form.

        Of two events at one sequence the higher rank counts: a closing copied from history, a row copied from
        history, a feed's upsert, a feed's delete, and among equals a hash of the row, so that no order of
        arrival matters. A delete keeps nothing but its keys, a truncate nothing at all.
        """
        frame = self.sequence(
            events.select(*conform(events, StructType([f for f in self.log if f.name != RANK])))
        )
        operation = F.col(OPERATION)
        cleared = {field.name: F.when(operation == UPSERT, F.col(quote(field.name))) for field in self.data}
        cleared |= {key: F.when(operation != TRUNCATE, F.col(quote(key))) for key in self.keys}
        frame = frame.withColumns(cleared)
        order = F.when(operation == UPSERT, F.when(F.col(EXACT), 1).otherwise(2)).otherwise(
            F.when(F.col(EXACT), 0).otherwise(3)
        )
        ordered = sorted(self.data, key=lambda field: field.name.lower())
        tie = F.xxhash64(
            *[comparable(F.col(quote(field.name)), field.dataType) for field in ordered], F.lit(0)
        )
        return frame.withColumn(
            RANK, F.shiftleft(order.cast("bigint"), 61).bitwiseOR(F.shiftrightunsigned(tie, 3))
        )

    def batch(self, events: DataFrame) -> DataFrame:
        """Return events in the log's form, one for each of the log's identities."""
        frame = self.logged(events)
        identity = [*names(self.keys), F.col(OPERATION) == TRUNCATE]
        if self.per_sequence:
            window = Window.partitionBy(*identity, F.col(SEQUENCE)).orderBy(F.col(RANK).desc())
        else:
            window = Window.partitionBy(*identity).orderBy(F.col(SEQUENCE).desc(), F.col(RANK).desc())
        return frame.withColumn(_NEXT, F.row_number().over(window)).where(F.col(_NEXT) == 1).drop(_NEXT)

    def touched(self, batch: DataFrame, log: DataFrame) -> DataFrame:
        """Return the distinct keys whose rows a batch may change."""
        keys = batch.where(F.col(OPERATION) != TRUNCATE).select(*names(self.keys))
        if self.truncates:
            until = batch.where(F.col(OPERATION) == TRUNCATE).agg(F.max(SEQUENCE).alias(_TRUNCATED))
            below = log.where(F.col(OPERATION) != TRUNCATE).crossJoin(until).where(_below())
            keys = keys.unionByName(below.select(*names(self.keys)))
        return keys.distinct()

    def rows(self, touched: DataFrame | None, log: DataFrame) -> DataFrame:
        """Return every row that the touched keys have, or may once have had, in the target.

        None stands for all keys. The log may hold an event several times.
        """
        frame = log
        if touched is not None:
            semi = same("log", "touched", self.keys)
            frame = log.alias("log").join(touched.alias("touched"), semi, "left_semi")
        if self.truncates:
            frame = frame.where(F.col(OPERATION) != TRUNCATE)
            until = log.where(F.col(OPERATION) == TRUNCATE).agg(F.max(SEQUENCE).alias(_TRUNCATED))
            operation = F.when(_below(), F.lit(DELETE)).otherwise(F.col(OPERATION))
            frame = frame.crossJoin(until).withColumn(OPERATION, operation)
        if self.per_sequence:
            window = Window.partitionBy(*names(self.keys)).orderBy(F.col(SEQUENCE), F.col(RANK))
            following = F.lead(F.struct(SEQUENCE)).over(window)
            frame = frame.withColumn(_NEXT, following).where(~F.col(_NEXT).eqNullSafe(F.struct(SEQUENCE)))
            if self.settings.ignore_null_updates:
                frame = self._carried(frame, window)
            return self._intervals(frame, window) if self.settings.scd_type == 2 else self._newest(frame)
        newest = Window.partitionBy(*names(self.keys)).orderBy(F.col(SEQUENCE).desc(), F.col(RANK).desc())
        frame = frame.withColumn(_NEXT, F.row_number().over(newest)).where(F.col(_NEXT) == 1)
        return self._newest(frame.withColumn(_NEXT, F.lit(None)))

    def first_rows(self, log: DataFrame) -> DataFrame:
        """Return the rows that all events of a log make, and only those that the target must have.

        They are `rows` of all keys, faster where the log holds no more than what was copied.
        """
        if self.settings.scd_type == 2:
            if log.where(~F.col(EXACT)).isEmpty():
                return self._exact_intervals(log)
        elif not self.truncates and log.groupBy(*names(self.keys)).count().where("count > 1").isEmpty():
            return self._newest(log.withColumn(_NEXT, F.lit(None))).where(ALIVE)
        return self.rows(None, log).where(ALIVE)

    def _exact_intervals(self, log: DataFrame) -> DataFrame:
        """Return one row for each upsert, which ends where the next event of its key comes."""
        window = Window.partitionBy(*names(self.keys)).orderBy(F.col(SEQUENCE), F.col(RANK))
        frame = log.withColumn(_NEXT, F.lead(F.struct(SEQUENCE)).over(window))
        last = ~F.col(_NEXT).eqNullSafe(F.struct(SEQUENCE))
        columns = names([*self.keys, *(field.name for field in self.data)])
        return frame.where(last & (F.col(OPERATION) == UPSERT)).select(
            *columns,
            F.col(SEQUENCE).alias(START),
            F.col(_NEXT)[SEQUENCE].alias(END),
            F.lit(True).alias(ALIVE),
        )

    def _carried(self, frame: DataFrame, window: WindowSpec) -> DataFrame:
        """Put the newest real value at or before each event in its place; a delete's NULLs are real, too."""
        upsert = F.col(OPERATION) == UPSERT
        past = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        carried = {}
        for field in self.data:
            value = F.col(quote(field.name))
            real = ~upsert | F.col(EXACT) | value.isNotNull()
            boxed = F.when(real, F.struct(F.when(upsert, value).alias("v")))
            carried[field.name] = F.last(boxed, ignorenulls=True).over(past)["v"]
        return frame.withColumns(carried)

    def _newest(self, frame: DataFrame) -> DataFrame:
        columns = names([*self.keys, *(field.name for field in self.data)])
        last = frame.where(F.col(_NEXT).isNull())
        return last.select(*columns, (F.col(OPERATION) == UPSERT).alias(ALIVE))

    def _intervals(self, frame: DataFrame, window: WindowSpec) -> DataFrame:
        """Return one row for each event: the interval of a run of events, or what the target must not have.

        A run is opened by an upsert that history copied, that follows no upsert, or that differs in a tracked
        column from the one before it. Its last event gives the interval's values; the event behind it ends
        it.
        """
        upsert = F.col(OPERATION) == UPSERT
        values = [comparable(F.col(quote(field.name)), field.dataType) for field in self.tracked]
        state = F.struct(
            F.col(OPERATION).alias("operation"), *[value.alias(f"c{at}") for at, value in enumerate(values)]
        )
        past = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        frame = frame.withColumn(_BEFORE, F.lag(state).over(window))
        opens = F.col(EXACT) | ~upsert | ~F.col(_BEFORE).eqNullSafe(state)
        frame = frame.withColumn(_OPENS, opens)
        opened = F.last(F.when(F.col(_OPENS), F.struct(SEQUENCE)), ignorenulls=True).over(past)
        frame = frame.withColumns(
            {
                START: opened[SEQUENCE],
                END: F.lead(SEQUENCE).over(window),
                _NEXT: F.lead(_OPENS).over(window),
            }
        )
        last = upsert & F.coalesce(F.col(_NEXT), F.lit(True))
        inside = ~upsert | ~F.col(_OPENS)
        kinds = F.array(F.when(last, F.lit(True)), F.when(inside, F.lit(False)))
        frame = frame.withColumn(ALIVE, F.explode(F.array_compact(kinds)))
        frame = frame.withColumn(START, F.when(F.col(ALIVE), F.col(START)).otherwise(F.col(SEQUENCE)))
        return frame.select(*names([*self.keys, START, END, *(field.name for field in self.data), ALIVE]))

    def differing(self, rows: DataFrame, present: DataFrame, touched: DataFrame) -> DataFrame:
        """Return those of the rows that the target lacks, has otherwise, or has in vain."""
        identity = [*self.keys, START] if self.settings.scd_type == 2 else self.keys
        there = present.alias("there").join(
            touched.alias("keys"), same("there", "keys", self.keys), "left_semi"
        )
        pairs = rows.alias("rows").join(
            there.withColumn(_BEFORE, F.lit(True)).alias("there"), same("rows", "there", identity), "left"
        )
        kinds = [(field.name, field.dataType) for field in self.data]
        if self.settings.scd_type == 2:
            kinds.append((END, rows.schema[END].dataType))
        # One comparison, for the optimizer takes hundreds of them apart again and again.
        mine, theirs = (
            F.struct(
                *[
                    comparable(F.col(f"{side}.{quote(name)}"), kind).alias(f"c{at}")
                    for at, (name, kind) in enumerate(kinds)
                ],
                F.lit(0),
            )
            for side in ("rows", "there")
        )
        equal = mine.eqNullSafe(theirs)
        missing = F.col(_BEFORE).isNull()
        alive = F.col(f"rows.{ALIVE}")
        return pairs.where((alive & (missing | ~equal)) | (~alive & ~missing)).select("rows.*")


def _below() -> Column:
    """Return whether an event is killed by the truncate beside it."""
    return F.col(_TRUNCATED).isNotNull() & (F.col(SEQUENCE).isNull() | (F.col(SEQUENCE) <= F.col(_TRUNCATED)))
