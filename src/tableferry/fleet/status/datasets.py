"""The figures as queries over a queue in Delta tables, for the dashboard of a workspace.

Every query names its tables alone: the dashboard says in which catalog and schema they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from string import Formatter
from typing import Any

from sqlalchemy import ColumnElement, func, literal, literal_column, select

from tableferry.fleet.jobs.job import State
from tableferry.fleet.queue.dialects import code_of, day_of
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.selections import to_notify
from tableferry.fleet.queue.sparksql import SparkDialect
from tableferry.fleet.queue.stuck_jobs import UNSENT_WORDS, last_change, rules, unsent
from tableferry.fleet.settings import STUCK_HOURS
from tableferry.fleet.status.figures import (
    ARCHIVED,
    MIGRATED,
    PHASE_WORDS,
    PHASES,
    STATE_WORDS,
    TO_DO,
    Milestone,
    Phase,
)


@dataclass(frozen=True)
class Dataset:
    """A query of the dashboard in Spark SQL, by its name for widgets and its title for people."""

    name: str
    title: str
    query: str
    columns: tuple[str, ...]


_SPARK = SparkDialect()


def _case(column: str, words: Mapping[State, str]) -> str:
    cases = " ".join(f"WHEN '{state.value}' THEN '{word}'" for state, word in words.items())
    return f"CASE {column} {cases} END"


def _is(milestone: Milestone) -> str:
    was = f"was = '{milestone.was.value}'" if milestone.was is not None else "was <> state"
    return f"state = '{milestone.state.value}' AND {was}"


_PHASE_OF = {state: PHASE_WORDS[phase] for state, phase in PHASES.items()}
_COMPLETED, _PROBATION = PHASE_WORDS[Phase.COMPLETED], PHASE_WORDS[Phase.PROBATION]
_TO_DO = ", ".join(f"'{PHASE_WORDS[phase]}'" for phase in TO_DO)
_ORDER = " ".join(f"WHEN '{state.value}' THEN {number}" for number, state in enumerate(PHASES))
_ADDED, _TODAY = (
    _SPARK.readable(day_of(literal_column(time))) for time in ("created_at", "current_timestamp()")
)

# A row that moves into the archive is in both for a moment.
_ALL = f"""
all_jobs AS (
  SELECT task_id, catalog_name, db_name, tbl_name, tbl_owners, state, desired_state, migration_paused,
    pause_reason, created_at, wave, table_bytes, {_case("state", _PHASE_OF)} AS phase
  FROM jobs
  UNION ALL
  SELECT a.task_id, a.catalog_name, a.db_name, a.tbl_name, a.tbl_owners, a.state, a.desired_state,
    a.migration_paused, a.pause_reason, a.created_at, a.wave, a.table_bytes,
    {_case("a.state", _PHASE_OF)} AS phase
  FROM jobs_archive AS a LEFT ANTI JOIN jobs AS j ON a.task_id = j.task_id
)"""

_COUNTS = f"""count_if(phase IN ({_TO_DO})) AS to_do, count_if(phase = '{_PROBATION}') AS on_probation,
  count_if(phase = '{_COMPLETED}') AS completed, count_if(migration_paused) AS paused,
  count(task_id) AS tables"""

# What changed on each day of UTC, then added up.
_DAYS = f"""
changes AS (
  SELECT {_ADDED} AS day, '{PHASE_WORDS[Phase.NEW]}' AS phase, 1 AS jobs FROM all_jobs
  UNION ALL
  SELECT day, {_case("state", _PHASE_OF)}, 1 FROM events WHERE state <> was
  UNION ALL
  SELECT day, {_case("was", _PHASE_OF)}, -1 FROM events WHERE state <> was
),
days AS (SELECT explode(sequence(min(day), {_TODAY})) AS day FROM changes),
phases AS (SELECT DISTINCT phase FROM changes),
by_day AS (
  SELECT d.day, p.phase, sum(coalesce(sum(c.jobs), 0)) OVER (PARTITION BY p.phase ORDER BY d.day) AS jobs
  FROM days AS d CROSS JOIN phases AS p
  LEFT JOIN changes AS c ON c.day = d.day AND c.phase = p.phase
  GROUP BY d.day, p.phase
)"""


def _ago(passed: timedelta) -> ColumnElement[Any]:
    hours = passed // timedelta(hours=1)
    return literal_column(f"current_timestamp() - INTERVAL {hours} HOURS" if hours else "current_timestamp()")


def _words(words: str) -> str:
    """Write a text in which a column's name in braces stands for its value."""
    parts: list[ColumnElement[Any]] = []
    for text, column, _, _ in Formatter().parse(words):
        parts += [literal(text)] if text else []
        parts += [literal_column(column)] if column else []
    return _SPARK.readable(func.concat(*parts) if len(parts) > 1 else parts[0])


def _stuck() -> str:
    """The jobs that should move and don't, by the rules that the command line goes by."""
    of_jobs = rules(_ago, timedelta(hours=STUCK_HOURS), literal_column("changed_at"))
    cases = [(_SPARK.readable(rule.applies), _words(rule.words)) for rule in of_jobs]
    cases.append(("unsent.task_id IS NOT NULL", _words(UNSENT_WORDS)))
    columns: list[ColumnElement[Any]] = [literal_column("jobs.*"), last_change().label("changed_at")]
    changed = select(*columns).select_from(jobs)
    troubles = "\n".join(f"      WHEN {applies}\n        THEN {words}" for applies, words in cases)
    return f"""
unsent AS (
  SELECT jobs.task_id, min_by(recorded.level, recorded.recorded_at) AS level
  FROM (
    SELECT explode(from_json(task_ids, 'array<bigint>')) AS task_id, message_id, level, recorded_at
    FROM letters WHERE {_SPARK.readable(unsent(_ago))}
  ) AS recorded
  JOIN jobs ON jobs.task_id = recorded.task_id
    AND contains(jobs.record, split_part(recorded.message_id, '@', 1))
  WHERE {_SPARK.readable(to_notify())}
  GROUP BY jobs.task_id
),
examined AS (
  SELECT jobs.*, CASE
{troubles}
    END AS trouble
  FROM ({_SPARK.readable(changed)}) AS jobs
  LEFT JOIN unsent ON unsent.task_id = jobs.task_id
),
stuck AS (SELECT * FROM examined WHERE trouble IS NOT NULL)"""


def datasets() -> tuple[Dataset, ...]:
    """Return all queries."""
    stuck = f"WITH {_stuck()}"
    return (
        Dataset(
            "summary",
            "Summary",
            f"""{stuck},{_ALL}
SELECT count(*) AS tables, count_if(phase = '{_COMPLETED}') AS completed,
  count_if(phase = '{_PROBATION}') AS on_probation, count_if(phase IN ({_TO_DO})) AS to_do,
  count_if(migration_paused) AS paused, (SELECT count(*) FROM stuck) AS stuck
FROM all_jobs""",
            ("tables", "completed", "on_probation", "to_do", "paused", "stuck"),
        ),
        Dataset(
            "stuck",
            "Stuck tables",
            f"""{stuck}
SELECT concat_ws('.', catalog_name, db_name, tbl_name) AS table, trouble, state,
  timestampdiff(DAY, changed_at, current_timestamp()) AS days,
  array_join(from_json(tbl_owners, 'array<string>'), ', ') AS owners
FROM stuck ORDER BY changed_at, task_id LIMIT 1000""",
            ("table", "trouble", "state", "days", "owners"),
        ),
        Dataset(
            "states",
            "Tables by state",
            f"""WITH {_ALL}
SELECT {_case("state", STATE_WORDS)} AS state, count(*) AS tables,
  min(CASE state {_ORDER} END) AS place
FROM all_jobs GROUP BY 1 ORDER BY place""",
            ("state", "tables", "place"),
        ),
        Dataset(
            "burn_down",
            "Burn-down",
            f"""WITH {_ALL},{_DAYS}
SELECT day, 'Not completed yet' AS series, sum(jobs) AS tables FROM by_day
WHERE phase NOT IN ('{_COMPLETED}', '{PHASE_WORDS[Phase.REVERTED]}') GROUP BY day
UNION ALL
SELECT day, 'Not migrated yet', sum(jobs) FROM by_day WHERE phase IN ({_TO_DO}) GROUP BY day
ORDER BY day, series""",
            ("day", "series", "tables"),
        ),
        Dataset(
            "over_time",
            "States over time",
            f"""WITH {_ALL},{_DAYS}
SELECT day, phase, jobs AS tables FROM by_day ORDER BY day, phase""",
            ("day", "phase", "tables"),
        ),
        Dataset(
            "owners",
            "Tables by owner",
            f"""WITH {_ALL}
SELECT owner, {_COUNTS}
FROM (SELECT *, explode_outer(from_json(tbl_owners, 'array<string>')) AS owner FROM all_jobs)
GROUP BY owner ORDER BY to_do DESC, tables DESC, owner LIMIT 1000""",
            ("owner", "to_do", "on_probation", "completed", "paused", "tables"),
        ),
        Dataset(
            "waves",
            "Waves",
            f"""WITH {_ALL}
SELECT name AS wave, CASE WHEN reason = '' THEN status ELSE concat(status, ': ', reason) END AS status,
  {_COUNTS},
  coalesce(round(sum(table_bytes) / 1e9, 1), 0) AS gigabytes
FROM waves LEFT JOIN all_jobs ON all_jobs.wave = waves.name
GROUP BY ALL ORDER BY wave""",
            ("wave", "status", "to_do", "on_probation", "completed", "paused", "tables", "gigabytes"),
        ),
        Dataset(
            "schemas",
            "Tables by schema",
            f"""WITH {_ALL}
SELECT concat_ws('.', catalog_name, db_name) AS schema, {_COUNTS},
  coalesce(round(sum(table_bytes) / 1e9, 1), 0) AS gigabytes
FROM all_jobs GROUP BY schema ORDER BY to_do DESC, tables DESC, schema LIMIT 1000""",
            ("schema", "to_do", "on_probation", "completed", "paused", "tables", "gigabytes"),
        ),
        Dataset(
            "pauses",
            "Paused tables by reason",
            f"""SELECT {_SPARK.readable(code_of(jobs.c.pause_reason))} AS reason, count(*) AS tables
FROM jobs WHERE migration_paused GROUP BY 1 ORDER BY tables DESC, reason""",
            ("reason", "tables"),
        ),
        Dataset(
            "pace",
            "Pace",
            f"""SELECT day, CASE WHEN {_is(ARCHIVED)} THEN 'Archived' ELSE 'Migrated' END AS what,
  count(*) AS tables
FROM events
WHERE ({_is(ARCHIVED)}) OR ({_is(MIGRATED)})
GROUP BY 1, 2 ORDER BY day, what""",
            ("day", "what", "tables"),
        ),
    )
