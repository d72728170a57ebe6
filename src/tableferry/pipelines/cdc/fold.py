"""Fold a log of CDC events into the rows of a target: pure functions from DataFrame to DataFrame.

The log
    One row for each event: the target's keys and data columns, `__sequence`, `__operation` (upsert, delete or
    truncate), `__exact` (True for an event made from a copied row) and `__rank`. A delete has NULL in the
    data columns; a truncate has NULL in the keys too. A log without any sequence has no column `__sequence`.

The order
    A key's events are ordered by `__sequence`, NULL first, then by `__rank`. At one sequence the rank orders
    them: copied delete, copied upsert, the feed's upsert, the feed's delete; then a hash of the data columns.
    Only the last event of a key and sequence counts. So the order of arrival never decides.

The fold
    The rows depend on the set of events alone. A second copy of an event has the same sequence and rank and
    changes nothing, so a batch may be applied twice.

    - SCD type 1: the last event of each key gives its row. A delete stays in the log as a tombstone that
      outranks late upserts.
    - SCD type 1 with ignore_null_updates: each column has its last value that isn't NULL since the last
      delete. Copied rows have no ignored NULLs.
    - SCD type 2: consecutive upserts without a change in a tracked column are one interval.
    - A truncate (SCD type 1) turns every event that isn't later than it into a delete.

The result
    The target's columns and `__alive`: True for a row that the target must contain, False for a row that it
    must not contain.

Expressions over all columns are written as SQL text, which Spark parses in one call. Column objects built in
Python cost some 2 ms for each operation: ten seconds a batch for a table of 500 columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tableferry.pipelines.cdc.event_columns import (
    ALIVE,
    DELETE,
    END,
    EVENT_COLUMNS,
    EXACT,
    OPERATION,
    RANK,
    SEQUENCE,
    START,
    TRUNCATE,
    UPSERT,
    null_safe_equal,
    quote_all,
)
from tableferry.pipelines.cdc.target_columns import comparable_sql, conform_columns, sql_type
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.quoting import quote

_TRUNCATED_UNTIL = "__truncated"
_OPENS_INTERVAL = "__opens"
_ENDS_INTERVAL = "__last"
_NEXT = "__next"
_IN_TARGET = "__before"
_IS_UPSERT = f"{OPERATION} = '{UPSERT}'"
_IS_TRUNCATE = f"{OPERATION} = '{TRUNCATE}'"
_IS_TRUNCATED = f"{_TRUNCATED_UNTIL} IS NOT NULL AND ({SEQUENCE} IS NULL OR {SEQUENCE} <= {_TRUNCATED_UNTIL})"
_UP_TO_CURRENT_ROW = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def struct_sql(values: Sequence[str]) -> str:
    """Write a struct of SQL values, so that one `<=>` compares all of them; an empty list gives one field."""
    fields = (f"'c{at}', {value}" for at, value in enumerate([*values, "0"]))
    return f"named_struct({', '.join(fields)})"


@dataclass(frozen=True)
class Fold:
    """The fold of one target: its AUTO CDC settings and the schema of its log."""

    settings: CdcSettings
    log_schema: StructType

    @property
    def keys(self) -> list[str]:
        """The key columns, in the log's spelling."""
        spelled = {name.lower(): name for name in self.log_schema.names}
        return [spelled[key.lower()] for key in self.settings.key_columns]

    @property
    def row_identity(self) -> list[str]:
        """The columns that identify a row of the target."""
        return [*self.keys, START] if self.settings.scd_type == 2 else self.keys

    @property
    def data_columns(self) -> list[StructField]:
        """The data columns that aren't keys."""
        others = {*self.keys, *EVENT_COLUMNS, RANK}
        return [field for field in self.log_schema.fields if field.name not in others]

    @property
    def has_sequence(self) -> bool:
        """Whether the log has the sequence column."""
        return SEQUENCE in self.log_schema.names

    @property
    def is_keyed_by_sequence(self) -> bool:
        """Whether one event counts for each key and sequence; otherwise one event counts for each key."""
        return self.settings.scd_type == 2 or self.settings.ignore_null_updates

    @property
    def has_truncates(self) -> bool:
        """Whether events may be truncates."""
        return self.settings.scd_type == 1 and bool(self.settings.apply_as_truncates)

    @property
    def tracked_columns(self) -> list[StructField]:
        """The data columns whose change opens a new interval."""
        only = {name.lower() for name in self.settings.track_history_column_list}
        excluded = {name.lower() for name in self.settings.track_history_except_column_list}
        return [
            field
            for field in self.data_columns
            if (not only or field.name.lower() in only) and field.name.lower() not in excluded
        ]

    def add_missing_sequence(self, frame: DataFrame) -> DataFrame:
        """Add a NULL sequence column to rows of a log that lacks it."""
        return frame if SEQUENCE in frame.columns else frame.withColumn(SEQUENCE, F.lit(None).cast("int"))

    def build_log_events(self, events: DataFrame) -> DataFrame:
        """Convert events to the log's columns and types, and give each its rank."""
        stored = [field for field in self.log_schema.fields if field.name != RANK]
        has_value = {field.name: _IS_UPSERT for field in self.data_columns}
        has_value |= dict.fromkeys(self.keys, f"NOT {_IS_TRUNCATE}")
        columns = [
            f"IF({has_value[field.name]}, {value}, NULL)" if field.name in has_value else value
            for field, value in zip(stored, conform_columns(events, stored), strict=True)
        ]
        frame = self.add_missing_sequence(_select_as(events, columns, [field.name for field in stored]))
        ordered = sorted(self.data_columns, key=lambda field: field.name.lower())
        row_hash = f"xxhash64({', '.join([*map(_comparable_sql, ordered), '0'])})"
        kind = f"CASE WHEN {_IS_UPSERT} THEN IF({EXACT}, 1, 2) ELSE IF({EXACT}, 0, 3) END"
        rank = f"shiftleft(CAST({kind} AS BIGINT), 61) | shiftrightunsigned({row_hash}, 3) AS {RANK}"
        return frame.selectExpr("*", rank)

    def build_batch(self, events: DataFrame) -> DataFrame:
        """Return the log events of a batch, the last one of each key or of each key and sequence."""
        identity = [*quote_all(self.keys), _IS_TRUNCATE]
        if self.is_keyed_by_sequence:
            identity.append(SEQUENCE)
        return _keep_newest(self.build_log_events(events), identity)

    def find_affected_keys(self, batch: DataFrame, log: DataFrame) -> DataFrame:
        """Return the distinct keys whose rows a batch may change; a truncate affects earlier keys."""
        keys = batch.where(f"NOT {_IS_TRUNCATE}").select(*quote_all(self.keys))
        if self.has_truncates:
            until = batch.where(_IS_TRUNCATE).selectExpr(f"max({SEQUENCE}) AS {_TRUNCATED_UNTIL}")
            truncated = log.where(f"NOT {_IS_TRUNCATE}").crossJoin(until).where(_IS_TRUNCATED)
            keys = keys.unionByName(truncated.select(*quote_all(self.keys)))
        return keys.distinct()

    def compute_rows(self, keys: DataFrame | None, log: DataFrame) -> DataFrame:
        """Compute the rows of some keys from the log.

        ``__alive`` is True for a row that the target must contain, and False for one that it must not have.
        The log has all events of these keys, or of all keys; an event may occur several times.
        """
        frame = log
        if keys is not None:
            condition = null_safe_equal("log", "keys", self.keys)
            frame = log.alias("log").join(keys.alias("keys"), condition, "left_semi")
        if self.has_truncates:
            until = log.where(_IS_TRUNCATE).selectExpr(f"max({SEQUENCE}) AS {_TRUNCATED_UNTIL}")
            frame = frame.where(f"NOT {_IS_TRUNCATE}").crossJoin(until)
            frame = frame.withColumn(OPERATION, F.expr(f"IF({_IS_TRUNCATED}, '{DELETE}', {OPERATION})"))
        if not self.is_keyed_by_sequence:
            return self._build_states(_keep_newest(frame, quote_all(self.keys)))
        next_sequence = f"lead(struct({SEQUENCE})) OVER ({self._by_sequence}) AS {_NEXT}"
        frame = frame.selectExpr("*", next_sequence).where(f"NOT {_NEXT} <=> struct({SEQUENCE})")
        if self.settings.ignore_null_updates:
            frame = self._fill_ignored_nulls(frame)
        if self.settings.scd_type == 2:
            return self._build_intervals(frame)
        return self._build_states(frame.where(f"{_NEXT} IS NULL"))

    def convert_copied_rows(self, rows: DataFrame, target: StructType) -> DataFrame:
        """Convert copied rows to the form of `compute_rows`."""
        return _select_as(rows, [*conform_columns(rows, target), "true"], [*target.names, ALIVE])

    @property
    def _by_sequence(self) -> str:
        """The window over a key's events in their order."""
        return f"PARTITION BY {', '.join(quote_all(self.keys))} ORDER BY {SEQUENCE}, {RANK}"

    @property
    def _quoted_columns(self) -> list[str]:
        """The keys and data columns, which every target has."""
        return quote_all([*self.keys, *(field.name for field in self.data_columns)])

    def _fill_ignored_nulls(self, frame: DataFrame) -> DataFrame:
        """Replace NULL in the feed's upserts by the column's last value.

        NULL in copied rows and deletes is a value.
        """
        filled = {}
        for field in self.data_columns:
            value = quote(field.name)
            is_value = f"NOT {_IS_UPSERT} OR {EXACT} OR {value} IS NOT NULL"
            boxed = f"IF({is_value}, named_struct('v', IF({_IS_UPSERT}, {value}, NULL)), NULL)"
            filled[field.name] = f"last({boxed}, true) OVER ({self._by_sequence} {_UP_TO_CURRENT_ROW}).v"
        columns = frame.columns
        return _select_as(frame, [filled.get(name, quote(name)) for name in columns], columns)

    def _build_states(self, last: DataFrame) -> DataFrame:
        """Return the current row of each key from its last event."""
        return last.selectExpr(*self._quoted_columns, f"{_IS_UPSERT} AS {ALIVE}")

    def _build_intervals(self, frame: DataFrame) -> DataFrame:
        """Return the validity intervals, and a row that isn't alive for each event that opens no interval.

        An upsert opens an interval if it was copied, follows no upsert, or differs from the previous upsert
        in a tracked column. The interval's last event gives its values; the next event's sequence is its end.
        """
        state = struct_sql([OPERATION, *map(_comparable_sql, self.tracked_columns)])
        opens = f"{EXACT} OR NOT {_IS_UPSERT} OR NOT lag({state}) OVER ({self._by_sequence}) <=> {state}"
        frame = frame.selectExpr("*", f"{opens} AS {_OPENS_INTERVAL}")
        opening = f"IF({_OPENS_INTERVAL}, struct({SEQUENCE}), NULL)"
        start = f"last({opening}, true) OVER ({self._by_sequence} {_UP_TO_CURRENT_ROW}).{SEQUENCE}"
        next_opens = f"lead({_OPENS_INTERVAL}) OVER ({self._by_sequence})"
        frame = frame.selectExpr(
            "*",
            f"{start} AS {START}",
            f"lead({SEQUENCE}) OVER ({self._by_sequence}) AS {END}",
            f"{_IS_UPSERT} AND coalesce({next_opens}, true) AS {_ENDS_INTERVAL}",
        )
        opens_none = f"NOT {_IS_UPSERT} OR NOT {_OPENS_INTERVAL}"
        alive = f"array_compact(array(IF({_ENDS_INTERVAL}, true, NULL), IF({opens_none}, false, NULL)))"
        frame = frame.selectExpr("*", f"explode({alive}) AS {ALIVE}")
        start = f"IF({ALIVE}, {START}, {SEQUENCE}) AS {START}"
        return frame.selectExpr(*self._quoted_columns, start, END, ALIVE)

    def cast_rows(self, rows: DataFrame, table: StructType) -> DataFrame:
        """Cast computed rows to the types of a table, whose structs may have other fields than the log's."""
        types = {field.name: field.dataType for field in self._with_types_of(table)}
        if all(sql_type(field.dataType) == sql_type(types[field.name]) for field in self.data_columns):
            return rows
        wanted = [StructField(field.name, types.get(field.name, field.dataType)) for field in rows.schema]
        return _select_as(rows, conform_columns(rows, wanted), rows.columns)

    def _with_types_of(self, table: StructType) -> list[StructField]:
        """Return the data columns with a table's types."""
        types = {field.name.lower(): field.dataType for field in table.fields}
        return [
            StructField(field.name, types.get(field.name.lower(), field.dataType))
            for field in self.data_columns
        ]

    def find_differing_rows(
        self, rows: DataFrame, target_rows: DataFrame, keys: DataFrame, target: StructType
    ) -> DataFrame:
        """Return the computed rows that a MERGE must insert, update or delete.

        The rows are those of `compute_rows` after `cast_rows`, for these keys. Rows of the target that have
        other keys are ignored.
        """
        existing = target_rows.alias("existing").join(
            keys.alias("keys"), null_safe_equal("existing", "keys", self.keys), "left_semi"
        )
        existing = existing.withColumn(_IN_TARGET, F.lit(True)).alias("existing")
        identity = null_safe_equal("rows", "existing", self.row_identity)
        pairs = rows.alias("rows").join(existing, identity, "left")
        fields = self._with_types_of(target)
        if self.settings.scd_type == 2:
            fields.append(rows.schema[END])
        # One comparison of structs: the optimizer splits hundreds of comparisons again and again.
        computed, stored = (
            struct_sql([_comparable_sql(field, f"{side}.") for field in fields])
            for side in ("rows", "existing")
        )
        equal = F.expr(f"{computed} <=> {stored}")
        missing = F.col(_IN_TARGET).isNull()
        alive = F.col(f"rows.{ALIVE}")
        return pairs.where((alive & (missing | ~equal)) | (~alive & ~missing)).select("rows.*")


def _keep_newest(frame: DataFrame, identity: Sequence[str]) -> DataFrame:
    """Return the last event of each identity."""
    order = f"PARTITION BY {', '.join(identity)} ORDER BY {SEQUENCE} DESC, {RANK} DESC"
    return frame.selectExpr("*", f"row_number() OVER ({order}) AS {_NEXT}").where(f"{_NEXT} = 1").drop(_NEXT)


def _select_as(frame: DataFrame, values: Sequence[str], columns: Sequence[str]) -> DataFrame:
    return frame.selectExpr(
        *[f"{value} AS {quote(name)}" for value, name in zip(values, columns, strict=True)]
    )


def _comparable_sql(field: StructField, prefix: str = "") -> str:
    return comparable_sql(prefix + quote(field.name), field.dataType)
