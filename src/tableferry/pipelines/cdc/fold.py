"""What AUTO CDC makes of a log of events: pure functions from DataFrame to DataFrame.

The log has the data columns and those named here; the rows that come out have the target's columns and
`ALIVE`: True for a row that the target must have, False for one that it must not.

What there is one of for each column is written as SQL, which Spark reads at once. Columns built in Python
cost some 2 ms for each operation: ten seconds a batch for a table of 500 columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tableferry.pipelines.cdc.target_columns import comparable, conform, sql_type
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.quoting import quote

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
_LAST = "__last"
_IS_UPSERT = f"{OPERATION} = '{UPSERT}'"
_IS_TRUNCATE = f"{OPERATION} = '{TRUNCATE}'"
# Whether an event is killed by the truncate beside it.
_BELOW = f"{_TRUNCATED} IS NOT NULL AND ({SEQUENCE} IS NULL OR {SEQUENCE} <= {_TRUNCATED})"
_PAST = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def names(columns: Sequence[str]) -> list[str]:
    """Write columns, which are given by their plain names."""
    return [quote(name) for name in columns]


def same(left: str, right: str, columns: Sequence[str]) -> Column:
    """Return the null-safe equality of columns of two aliased frames."""
    return F.expr(" AND ".join(f"{left}.{quote(name)} <=> {right}.{quote(name)}" for name in columns))


def struct(values: Sequence[str]) -> str:
    """Write one value of many, which `<=>` compares at once; it has a field even if there is none."""
    fields = (f"'c{at}', {value}" for at, value in enumerate([*values, "0"]))
    return f"named_struct({', '.join(fields)})"


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
        stored = [field for field in self.log.fields if field.name != RANK]
        kept = {field.name: _IS_UPSERT for field in self.data}
        kept |= dict.fromkeys(self.keys, f"NOT {_IS_TRUNCATE}")
        columns = [
            f"IF({kept[field.name]}, {value}, NULL)" if field.name in kept else value
            for field, value in zip(stored, conform(events, stored), strict=True)
        ]
        frame = self.sequence(_as(events, columns, [field.name for field in stored]))
        ordered = sorted(self.data, key=lambda field: field.name.lower())
        tie = f"xxhash64({', '.join([*map(_comparable, ordered), '0'])})"
        order = f"CASE WHEN {_IS_UPSERT} THEN IF({EXACT}, 1, 2) ELSE IF({EXACT}, 0, 3) END"
        rank = f"shiftleft(CAST({order} AS BIGINT), 61) | shiftrightunsigned({tie}, 3) AS {RANK}"
        return frame.selectExpr("*", rank)

    def batch(self, events: DataFrame) -> DataFrame:
        """Return events in the log's form, one for each of the log's identities."""
        identity = [*names(self.keys), f"{OPERATION} = '{TRUNCATE}'"]
        if self.per_sequence:
            identity.append(SEQUENCE)
        return _first(self.logged(events), identity)

    def touched(self, batch: DataFrame, log: DataFrame) -> DataFrame:
        """Return the distinct keys whose rows a batch may change."""
        keys = batch.where(f"NOT {_IS_TRUNCATE}").select(*names(self.keys))
        if self.truncates:
            until = batch.where(_IS_TRUNCATE).selectExpr(f"max({SEQUENCE}) AS {_TRUNCATED}")
            below = log.where(f"NOT {_IS_TRUNCATE}").crossJoin(until).where(_BELOW)
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
            until = log.where(_IS_TRUNCATE).selectExpr(f"max({SEQUENCE}) AS {_TRUNCATED}")
            frame = frame.where(f"NOT {_IS_TRUNCATE}").crossJoin(until)
            frame = frame.withColumn(OPERATION, F.expr(f"IF({_BELOW}, '{DELETE}', {OPERATION})"))
        if not self.per_sequence:
            return self._states(_first(frame, names(self.keys)))
        following = f"lead(struct({SEQUENCE})) OVER ({self._in_order}) AS {_NEXT}"
        frame = frame.selectExpr("*", following).where(f"NOT {_NEXT} <=> struct({SEQUENCE})")
        if self.settings.ignore_null_updates:
            frame = self._carried(frame)
        if self.settings.scd_type == 2:
            return self._intervals(frame)
        return self._states(frame.where(f"{_NEXT} IS NULL"))

    def copied(self, rows: DataFrame, target: StructType) -> DataFrame:
        """Return rows that were copied, in the form of `rows`."""
        return _as(rows, [*conform(rows, target), "true"], [*target.names, ALIVE])

    @property
    def _in_order(self) -> str:
        """The window of a key's events, the earliest first."""
        return f"PARTITION BY {', '.join(names(self.keys))} ORDER BY {SEQUENCE}, {RANK}"

    @property
    def _columns(self) -> list[str]:
        """The columns that every target has."""
        return names([*self.keys, *(field.name for field in self.data)])

    def _carried(self, frame: DataFrame) -> DataFrame:
        """Put the newest real value at or before each event in its place; a delete's NULLs are real, too."""
        carried = {}
        for field in self.data:
            value = quote(field.name)
            real = f"NOT {_IS_UPSERT} OR {EXACT} OR {value} IS NOT NULL"
            boxed = f"IF({real}, named_struct('v', IF({_IS_UPSERT}, {value}, NULL)), NULL)"
            carried[field.name] = f"last({boxed}, true) OVER ({self._in_order} {_PAST}).v"
        columns = frame.columns
        return _as(frame, [carried.get(name, quote(name)) for name in columns], columns)

    def _states(self, last: DataFrame) -> DataFrame:
        """Return the present state of each key from its last event."""
        return last.selectExpr(*self._columns, f"{_IS_UPSERT} AS {ALIVE}")

    def _intervals(self, frame: DataFrame) -> DataFrame:
        """Return one row for each event: the interval of a run of events, or what the target must not have.

        A run is opened by an upsert that history copied, that follows no upsert, or that differs in a tracked
        column from the one before it. Its last event gives the interval's values; the event behind it ends
        it.
        """
        state = struct([OPERATION, *map(_comparable, self.tracked)])
        opens = f"{EXACT} OR NOT {_IS_UPSERT} OR NOT lag({state}) OVER ({self._in_order}) <=> {state}"
        frame = frame.selectExpr("*", f"{opens} AS {_OPENS}")
        opened = f"last(IF({_OPENS}, struct({SEQUENCE}), NULL), true) OVER ({self._in_order} {_PAST})"
        frame = frame.selectExpr(
            "*",
            f"{opened}.{SEQUENCE} AS {START}",
            f"lead({SEQUENCE}) OVER ({self._in_order}) AS {END}",
            f"{_IS_UPSERT} AND coalesce(lead({_OPENS}) OVER ({self._in_order}), true) AS {_LAST}",
        )
        inside = f"NOT {_IS_UPSERT} OR NOT {_OPENS}"
        kinds = f"array_compact(array(IF({_LAST}, true, NULL), IF({inside}, false, NULL)))"
        frame = frame.selectExpr("*", f"explode({kinds}) AS {ALIVE}")
        start = f"IF({ALIVE}, {START}, {SEQUENCE}) AS {START}"
        return frame.selectExpr(*self._columns, start, END, ALIVE)

    def typed(self, rows: DataFrame, table: StructType) -> DataFrame:
        """Return rows of the log with the types of a table, whose structs may have other fields."""
        fields = self._of(table, self.data)
        if list(map(_sql_type, fields)) == list(map(_sql_type, self.data)):
            return rows
        types = {field.name: field.dataType for field in fields}
        wanted = [StructField(field.name, types.get(field.name, field.dataType)) for field in rows.schema]
        return _as(rows, conform(rows, wanted), rows.columns)

    def _of(self, table: StructType, columns: Sequence[StructField]) -> list[StructField]:
        """Return the log's columns with a table's types."""
        types = {field.name.lower(): field.dataType for field in table.fields}
        return [StructField(field.name, types.get(field.name.lower(), field.dataType)) for field in columns]

    def differing(
        self, rows: DataFrame, present: DataFrame, touched: DataFrame, table: StructType
    ) -> DataFrame:
        """Return those of the `typed` rows that the target lacks, has with other values, or must not have."""
        identity = [*self.keys, START] if self.settings.scd_type == 2 else self.keys
        there = present.alias("there").join(
            touched.alias("keys"), same("there", "keys", self.keys), "left_semi"
        )
        pairs = rows.alias("rows").join(
            there.withColumn(_BEFORE, F.lit(True)).alias("there"), same("rows", "there", identity), "left"
        )
        fields = self._of(table, self.data)
        if self.settings.scd_type == 2:
            fields.append(rows.schema[END])
        # One comparison, for the optimizer takes hundreds of them apart again and again.
        mine, theirs = (
            struct([_comparable(field, f"{side}.") for field in fields]) for side in ("rows", "there")
        )
        equal = F.expr(f"{mine} <=> {theirs}")
        missing = F.col(_BEFORE).isNull()
        alive = F.col(f"rows.{ALIVE}")
        return pairs.where((alive & (missing | ~equal)) | (~alive & ~missing)).select("rows.*")


def _first(frame: DataFrame, identity: Sequence[str]) -> DataFrame:
    """Return, of the events that are alike, the one that counts."""
    order = f"PARTITION BY {', '.join(identity)} ORDER BY {SEQUENCE} DESC, {RANK} DESC"
    return frame.selectExpr("*", f"row_number() OVER ({order}) AS {_NEXT}").where(f"{_NEXT} = 1").drop(_NEXT)


def _as(frame: DataFrame, values: Sequence[str], columns: Sequence[str]) -> DataFrame:
    return frame.selectExpr(
        *[f"{value} AS {quote(name)}" for value, name in zip(values, columns, strict=True)]
    )


def _sql_type(field: StructField) -> str:
    return sql_type(field.dataType)


def _comparable(field: StructField, of: str = "") -> str:
    return comparable(of + quote(field.name), field.dataType)
