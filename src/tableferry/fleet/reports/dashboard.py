"""The figures as an AI/BI dashboard: the text of its ``*.lvdash.json``. Not run on Databricks.

The queries are the selects of `fleet status` in Spark SQL, for a queue in Delta tables. They name tables
without a schema: the dashboard has a default catalog and schema. The format is Databricks': datasets with
their queries, and pages of widgets on a grid of six columns. Each kind of widget has its own version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from string import Formatter
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    DateTime,
    Float,
    Select,
    SelectBase,
    Subquery,
    case,
    func,
    literal,
    literal_column,
    select,
    true,
    union_all,
)

from tableferry.fleet.queue.dialects import day_of
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.schema import waves as wave_table
from tableferry.fleet.queue.sparksql import SparkDialect
from tableferry.fleet.reports import figure_queries
from tableferry.fleet.reports.figure_types import (
    ARCHIVED,
    MIGRATED,
    PHASE_WORDS,
    PHASES,
    STATE_WORDS,
    TO_DO,
    Phase,
)
from tableferry.fleet.reports.stuck_jobs import rules, stuck_jobs
from tableferry.fleet.settings import STUCK_HOURS

_Json = dict[str, Any]

_SPARK = SparkDialect()
_NOW = literal_column("current_timestamp()", DateTime())
_REST = timedelta(hours=STUCK_HOURS)
_ROWS = 1000


@dataclass(frozen=True)
class Dataset:
    """A query of the dashboard.

    Attributes:
        name: The name for widgets.
        title: The name for people.
        select: The query, whose columns the widgets show.
    """

    name: str
    title: str
    select: SelectBase

    @property
    def query(self) -> str:
        """The query in Spark SQL."""
        return _SPARK.readable(self.select)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the query's columns."""
        return tuple(self.select.selected_columns.keys())


def datasets() -> tuple[Dataset, ...]:
    """Return all queries."""
    return (
        Dataset("summary", "Summary", _summary()),
        Dataset("stuck", "Stuck tables", _stuck()),
        Dataset("states", "Tables by state", _states()),
        Dataset("burn_down", "Burn-down", _burn_down()),
        Dataset("over_time", "States over time", _over_time()),
        Dataset("owners", "Tables by owner", _owners()),
        Dataset("waves", "Waves", _waves()),
        Dataset("schemas", "Tables by schema", _schemas()),
        Dataset("pauses", "Paused tables by reason", _pauses()),
        Dataset("pace", "Pace", _pace()),
    )


def _summary() -> Select[Any]:
    names = {
        "tables": "jobs",
        "completed": "completed",
        "on_probation": "probation",
        "to_do": "to_do",
        "paused": "paused",
    }
    counts: list[ColumnElement[Any]] = [
        figure_queries.COUNTS[count].label(name) for name, count in names.items()
    ]
    stuck = select(func.count()).select_from(stuck_jobs(_ago, _REST).cte("stuck")).scalar_subquery()
    return select(*counts, stuck.label("stuck")).select_from(jobs)


def _stuck() -> Select[Any]:
    stuck = stuck_jobs(_ago, _REST).cte("stuck")
    c = jobs.c
    words = {number: _words(rule.words, stuck) for number, rule in enumerate(rules(_ago, _REST))}
    return (
        select(
            func.concat_ws(".", c.catalog_name, c.db_name, c.tbl_name).label("table"),
            case(words, value=stuck.c.rule).label("trouble"),
            c.state,
            func.timestampdiff(literal_column("DAY"), stuck.c.changed_at, _NOW).label("days"),
            func.array_join(func.from_json(c.tbl_owners, "array<string>"), ", ").label("owners"),
        )
        .select_from(stuck.join(jobs, c.task_id == stuck.c.task_id))
        .order_by(stuck.c.changed_at, c.task_id)
        .limit(_ROWS)
    )


def _words(words: str, stuck: CTE) -> ColumnElement[str]:
    """Return a rule's words with the values of the columns that they name."""
    parts: list[ColumnElement[Any]] = []
    for text, name, _, _ in Formatter().parse(words):
        parts += [literal(text)] if text else []
        parts += [stuck.c[name] if name in stuck.c else jobs.c[name]] if name else []
    return func.concat(*parts) if len(parts) > 1 else parts[0]


def _ago(passed: timedelta) -> ColumnElement[Any]:
    hours = passed // timedelta(hours=1)
    return literal_column(f"current_timestamp() - INTERVAL {hours} HOURS") if hours else _NOW


def _states() -> Select[Any]:
    counted = figure_queries.states().subquery("counted")
    place = case({state.value: number for number, state in enumerate(PHASES)}, value=counted.c.state)
    words = figure_queries.case_of(counted.c.state, STATE_WORDS)
    return select(words.label("state"), counted.c.jobs.label("tables"), place.label("place")).order_by(
        "place"
    )


def _by_day() -> Subquery:
    """Select the number of jobs in each phase when each day ended: day, phase, jobs."""
    changes = figure_queries.changes(PHASE_WORDS).cte("changes")
    days = select(func.explode(func.sequence(func.min(changes.c.day), day_of(_NOW))).label("day")).cte("days")
    phases = select(changes.c.phase).distinct().cte("phases")
    day, phase = days.c.day, phases.c.phase
    so_far = func.sum(func.coalesce(changes.c.jobs, 0)).over(partition_by=phase, order_by=day)
    return (
        select(day, phase, so_far.label("jobs"))
        .select_from(
            days.join(phases, true()).outerjoin(changes, (changes.c.day == day) & (changes.c.phase == phase))
        )
        .subquery("by_day")
    )


def _burn_down() -> SelectBase:
    by_day = _by_day()
    ends = [PHASE_WORDS[Phase.COMPLETED], PHASE_WORDS[Phase.REVERTED]]
    series = {
        "Not completed yet": by_day.c.phase.not_in(ends),
        "Not migrated yet": by_day.c.phase.in_([PHASE_WORDS[phase] for phase in TO_DO]),
    }
    return union_all(
        *(
            select(by_day.c.day, literal(name).label("series"), func.sum(by_day.c.jobs).label("tables"))
            .where(condition)
            .group_by(by_day.c.day)
            for name, condition in series.items()
        )
    ).order_by("day", "series")


def _over_time() -> Select[Any]:
    by_day = _by_day()
    return select(by_day.c.day, by_day.c.phase, by_day.c.jobs.label("tables")).order_by("day", "phase")


def _counts(counted: Subquery) -> list[ColumnElement[Any]]:
    names = {"to_do": "to_do", "probation": "on_probation", "completed": "completed", "paused": "paused"}
    names["jobs"] = "tables"
    return [func.coalesce(counted.c[count], 0).label(name) for count, name in names.items()]


def _gigabytes(counted: Subquery) -> ColumnElement[Any]:
    return func.coalesce(func.round(counted.c.bytes / literal_column("1e9", Float()), 1), 0).label(
        "gigabytes"
    )


def _owners() -> Select[Any]:
    counted = figure_queries.owners().subquery("counted")
    return _most_to_do(select(counted.c.owner, *_counts(counted)), "owner")


def _schemas() -> Select[Any]:
    counted = figure_queries.schemas().subquery("counted")
    schema = func.concat_ws(".", counted.c.catalog_name, counted.c.db_name).label("schema")
    return _most_to_do(select(schema, *_counts(counted), _gigabytes(counted)), "schema")


def _most_to_do(query: Select[Any], name: str) -> Select[Any]:
    return query.order_by(literal_column("to_do").desc(), literal_column("tables").desc(), name).limit(_ROWS)


def _waves() -> Select[Any]:
    counted, c = figure_queries.waves().subquery("counted"), wave_table.c
    status = case((c.reason == "", c.status), else_=func.concat(c.status, ": ", c.reason))
    return (
        select(c.name.label("wave"), status.label("status"), *_counts(counted), _gigabytes(counted))
        .select_from(wave_table.outerjoin(counted, counted.c.wave == c.name))
        .order_by(c.name)
    )


def _pauses() -> Select[Any]:
    counted = figure_queries.pauses().subquery("counted")
    tables = counted.c.jobs.label("tables")
    return select(counted.c.reason, tables).order_by(tables.desc(), counted.c.reason)


def _pace() -> Select[Any]:
    reached = figure_queries.milestones({ARCHIVED: "Archived", MIGRATED: "Migrated"}).subquery("reached")
    return select(reached.c.day, reached.c.what, reached.c.jobs.label("tables")).order_by("day", "what")


def render() -> str:
    """Return the dashboard's text, the same each time."""
    layout = [
        _at(0, 0, 6, 1, _text("title", "## Fleet migration: how far it is")),
        *(_at(x, 1, 1, 2, _counter("summary", field, title)) for x, (field, title) in enumerate(_COUNTERS)),
        _at(0, 3, 6, 5, _table("stuck", "Stuck tables", _STUCK)),
        _at(0, 8, 3, 6, _chart("line", "burn_down", "Burn-down", "day", "tables", "series")),
        _at(3, 8, 3, 6, _chart("area", "over_time", "States over time", "day", "tables", "phase")),
        _at(0, 14, 3, 6, _chart("bar", "states", "Tables by state", "state", "tables")),
        _at(3, 14, 3, 6, _chart("bar", "pauses", "Paused, by reason", "reason", "tables")),
        _at(0, 20, 3, 6, _chart("bar", "pace", "Migrated and archived a day", "day", "tables", "what")),
        _at(3, 20, 3, 6, _table("owners", "Owners", _OWNERS)),
        _at(0, 26, 3, 6, _table("waves", "Waves", _WAVES)),
        _at(3, 26, 3, 6, _table("schemas", "Schemas", _SCHEMAS)),
    ]
    page = {
        "name": "fleet",
        "displayName": "Fleet",
        "layout": layout,
        "pageType": "PAGE_TYPE_CANVAS",
    }
    dashboard = {"datasets": [_dataset(dataset) for dataset in datasets()], "pages": [page]}
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


_COUNTERS = (
    ("tables", "Tables"),
    ("completed", "Completed"),
    ("on_probation", "On probation"),
    ("to_do", "To do"),
    ("paused", "Paused"),
    ("stuck", "Stuck"),
)
_STUCK = {
    "table": "Table",
    "trouble": "Trouble",
    "state": "State",
    "days": "Days since its last change",
    "owners": "Owners",
}
_COUNTS = {
    "to_do": "To do",
    "on_probation": "On probation",
    "completed": "Completed",
    "paused": "Paused",
}
_OWNERS = {"owner": "Owner", **_COUNTS}
_WAVES = {"wave": "Wave", "status": "Status", **_COUNTS, "gigabytes": "GB"}
_SCHEMAS = {"schema": "Schema", **_COUNTS, "gigabytes": "GB"}


def _dataset(dataset: Dataset) -> _Json:
    return {
        "name": dataset.name,
        "displayName": dataset.title,
        "queryLines": dataset.query.splitlines(keepends=True),
    }


def _at(x: int, y: int, width: int, height: int, widget: _Json) -> _Json:
    return {"widget": widget, "position": {"x": x, "y": y, "width": width, "height": height}}


def _text(name: str, markdown: str) -> _Json:
    return {"name": name, "multilineTextboxSpec": {"lines": [markdown]}}


def _counter(dataset: str, field: str, title: str) -> _Json:
    encodings = {"value": {"fieldName": field, "displayName": title}}
    return _widget(f"{dataset}_{field}", dataset, [field], _spec("counter", 2, title, encodings))


def _table(dataset: str, title: str, titles: Mapping[str, str]) -> _Json:
    encodings = {"columns": [{"fieldName": field, "displayName": name} for field, name in titles.items()]}
    return _widget(f"{dataset}_table", dataset, list(titles), _spec("table", 2, title, encodings))


def _chart(
    kind: str,
    dataset: str,
    title: str,
    x: str,
    y: str,
    color: str | None = None,
) -> _Json:
    # The order of words is the query's.
    across = {"type": "temporal"} if x == "day" else {"type": "categorical", "sort": {"by": "natural-order"}}
    encodings: _Json = {
        "x": {"fieldName": x, "scale": across, "displayName": x.capitalize()},
        "y": {"fieldName": y, "scale": {"type": "quantitative"}, "displayName": y.capitalize()},
    }
    fields = [x, y]
    if color is not None:
        fields.append(color)
        encodings["color"] = {
            "fieldName": color,
            "scale": {"type": "categorical"},
            "displayName": color.capitalize(),
        }
    return _widget(f"{dataset}_{kind}", dataset, fields, _spec(kind, 3, title, encodings))


def _spec(kind: str, version: int, title: str, encodings: _Json) -> _Json:
    return {
        "version": version,
        "widgetType": kind,
        "encodings": encodings,
        "frame": {"showTitle": True, "title": title},
    }


def _widget(name: str, dataset: str, fields: Sequence[str], spec: _Json) -> _Json:
    query = {
        "datasetName": dataset,
        "fields": [{"name": field, "expression": f"`{field}`"} for field in fields],
        "disaggregated": True,
    }
    return {"name": name, "queries": [{"name": "main_query", "query": query}], "spec": spec}
