"""The figures as queries over a queue in Delta tables, for the dashboard of a workspace.

Every query names its tables alone: the dashboard says in which catalog and schema they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tableferry.fleet.job import State
from tableferry.fleet.status.figures import PHASE_WORDS, PHASES, STATE_WORDS, Phase


@dataclass(frozen=True)
class Dataset:
    """A query of the dashboard.

    Attributes:
        name: Its name for widgets.
        title: Its name for people.
        query: Spark SQL.
        columns: What it gives.
    """

    name: str
    title: str
    query: str
    columns: tuple[str, ...]


def _case(column: str, words: Mapping[State, str]) -> str:
    cases = " ".join(f"WHEN '{state.value}' THEN '{word}'" for state, word in words.items())
    return f"CASE {column} {cases} END"


_PHASE_OF = {state: PHASE_WORDS[phase] for state, phase in PHASES.items()}
_COMPLETED, _PROBATION = PHASE_WORDS[Phase.COMPLETED], PHASE_WORDS[Phase.PROBATION]
_TO_DO = ", ".join(f"'{PHASE_WORDS[each]}'" for each in (Phase.NEW, Phase.READY, Phase.MIGRATING))
_ORDER = " ".join(f"WHEN '{state.value}' THEN {number}" for number, state in enumerate(PHASES))

# A row on its way into the archive is in both for a moment.
_ALL = f"""
all_jobs AS (
  SELECT task_id, catalog_name, db_name, tbl_name, tbl_owners, state, desired_state, migration_paused,
    pause_reason, created_at, {_case("state", _PHASE_OF)} AS phase
  FROM jobs
  UNION ALL
  SELECT a.task_id, a.catalog_name, a.db_name, a.tbl_name, a.tbl_owners, a.state, a.desired_state,
    a.migration_paused, a.pause_reason, a.created_at, {_case("a.state", _PHASE_OF)} AS phase
  FROM jobs_archive AS a LEFT ANTI JOIN jobs AS j ON a.task_id = j.task_id
)"""

# What changed on each day, then added up.
_DAYS = f"""
changes AS (
  SELECT date(created_at) AS day, '{PHASE_WORDS[Phase.NEW]}' AS phase, 1 AS jobs FROM all_jobs
  UNION ALL
  SELECT date(at), {_case("state", _PHASE_OF)}, 1 FROM events WHERE state <> was
  UNION ALL
  SELECT date(at), {_case("was", _PHASE_OF)}, -1 FROM events WHERE state <> was
),
days AS (SELECT explode(sequence(min(day), current_date())) AS day FROM changes),
phases AS (SELECT DISTINCT phase FROM changes),
by_day AS (
  SELECT d.day, p.phase, sum(coalesce(sum(c.jobs), 0)) OVER (PARTITION BY p.phase ORDER BY d.day) AS jobs
  FROM days AS d CROSS JOIN phases AS p
  LEFT JOIN changes AS c ON c.day = d.day AND c.phase = p.phase
  GROUP BY d.day, p.phase
)"""

_LAST_CHANGE = "changed AS (SELECT task_id, max(at) AS at FROM events GROUP BY task_id)"


def _stuck(stuck_hours: int) -> str:
    """The jobs that should move and don't, as the command line finds them."""
    on_the_walk = "'WritesBlocked', 'IcebergReady', 'IcebergPrimary', 'SyncHive', 'HivePrimary'"
    day = max(stuck_hours, 24)
    ago = "current_timestamp() - INTERVAL {} HOURS".format
    return f"""
untold AS (
  SELECT explode(from_json(task_ids, 'array<bigint>')) AS task_id, recorded_at
  FROM letters WHERE sent_at IS NULL AND recorded_at < {ago(24)}
),
found AS (
  SELECT j.*, CASE
      WHEN NOT migration_paused AND shadow_status IS NOT NULL AND free AND last_updated_time < {ago(24)}
        THEN 'the Hive copy is not kept in step'
      WHEN NOT migration_paused AND in_process AND state = 'WritesUnblocked' AND desired_state = state
        AND probation_gap_days > 0 AND shadow_watermark IS NULL AND comm_level2_date < {ago(48)}
        THEN 'the Hive copy is not kept in step'
      WHEN lease_until < current_timestamp() AND claimed_by IS NOT NULL
        THEN concat('worker ', claimed_by, ' went away with it')
      WHEN NOT migration_paused AND free AND state IN ({on_the_walk}) AND changed_at < {ago(stuck_hours)}
        THEN 'writes are blocked, and no run takes it on'
      WHEN NOT migration_paused AND free AND state IN ('WritesUnblocked', 'HiveDropped')
        AND state <> desired_state AND changed_at < {ago(day)}
        THEN 'asked for, and no run took it up'
      WHEN untold_at IS NOT NULL THEN 'its letter was recorded and not sent'
    END AS trouble
  FROM (
    SELECT jobs.*, coalesce(changed.at, created_at) AS changed_at, untold.recorded_at AS untold_at,
      claimed_by IS NULL OR lease_until <= current_timestamp() AS free
    FROM jobs LEFT JOIN changed ON changed.task_id = jobs.task_id
    LEFT JOIN (SELECT task_id, min(recorded_at) AS recorded_at FROM untold GROUP BY task_id) AS untold
      ON untold.task_id = jobs.task_id
  ) AS j
),
stuck AS (SELECT * FROM found WHERE trouble IS NOT NULL)"""


def datasets(stuck_hours: int = 3) -> tuple[Dataset, ...]:
    """Return all queries.

    Args:
        stuck_hours: How long a job may rest on its way before it counts as stuck.
    """
    stuck = f"WITH {_LAST_CHANGE},{_stuck(stuck_hours)}"
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
SELECT owner, count_if(phase IN ({_TO_DO})) AS to_do, count_if(phase = '{_PROBATION}') AS on_probation,
  count_if(phase = '{_COMPLETED}') AS completed, count_if(migration_paused) AS paused, count(*) AS tables
FROM (SELECT *, explode_outer(from_json(tbl_owners, 'array<string>')) AS owner FROM all_jobs)
GROUP BY owner ORDER BY to_do DESC, tables DESC, owner LIMIT 1000""",
            ("owner", "to_do", "on_probation", "completed", "paused", "tables"),
        ),
        Dataset(
            "pauses",
            "Paused tables by reason",
            """SELECT substring_index(pause_reason, ':', 1) AS reason, count(*) AS tables
FROM jobs WHERE migration_paused GROUP BY 1 ORDER BY tables DESC, reason""",
            ("reason", "tables"),
        ),
        Dataset(
            "pace",
            "Pace",
            """SELECT date(at) AS day,
  CASE state WHEN 'HiveDropped' THEN 'Archived' ELSE 'Migrated' END AS what, count(*) AS tables
FROM events
WHERE (state = 'HiveDropped' AND was <> state) OR (state = 'WritesUnblocked' AND was = 'IcebergPrimary')
GROUP BY 1, 2 ORDER BY day, what""",
            ("day", "what", "tables"),
        ),
    )
