"""The archive is a column of the jobs, and no longer a table."""

from __future__ import annotations

import logging

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql

from tableferry.fleet.queue.migrations.existing_objects import existing_objects

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_log = logging.getLogger("tableferry.fleet.queue")

_COLUMNS = (
    "task_id, catalog_name, db_name, tbl_name, stg_format, data_category, tbl_owners, downstream_users, "
    "to_be_processed, in_process, state, desired_state, initial_gap_days, probation_gap_days, "
    "comm_level1_date, comm_level2_date, comm_level3_date, shadow_watermark, migration_paused, pause_reason, "
    "shadow_status, created_at, last_updated_time, target_format, revision, claimed_by, lease_until, record, "
    "wave, table_files, table_bytes, begun_at, close_at, target_catalog, target_schema, old_name, rewrite, "
    "archived_at"
)


def _same_table(one: str, other: str) -> str:
    names = ("catalog_name", "db_name", "tbl_name")
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in names)


# A table has one job. If somebody inserted another job of an archived job's table by hand, the archived job
# stays in the old table.
_MOVE = f"""
INSERT INTO jobs ({_COLUMNS}) SELECT {_COLUMNS} FROM jobs_archive
WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.task_id = jobs_archive.task_id)
AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE {_same_table("j", "jobs_archive")})
AND NOT EXISTS (
  SELECT 1 FROM jobs_archive AS a
  WHERE {_same_table("a", "jobs_archive")} AND a.task_id > jobs_archive.task_id
)
"""
_DELETE_MOVED = f"""
DELETE FROM jobs_archive WHERE EXISTS (
  SELECT 1 FROM jobs AS j WHERE j.task_id = jobs_archive.task_id AND {_same_table("j", "jobs_archive")}
)
"""


def upgrade() -> None:
    """Move the rows of the archive and drop it, also after a run that was interrupted."""
    existing, is_offline = existing_objects(), context.is_offline_mode()
    if ("jobs", "archived_at") not in existing:
        time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
        op.add_column("jobs", sa.Column("archived_at", time))
    if ("jobs", "queued_jobs") not in existing:
        columns = ["state", "desired_state", "migration_paused", "target_format", "archived_at"]
        op.create_index("queued_jobs", "jobs", columns)
    if is_offline or ("jobs", "jobs_by_state") in existing:
        op.drop_index("jobs_by_state", "jobs")
    if is_offline or ("jobs_archive", "task_id") in existing:
        op.execute(_MOVE)
        op.execute(_DELETE_MOVED)
        if not is_offline:
            _drop_if_empty()


def _drop_if_empty() -> None:
    left = op.get_bind().execute(sa.text("SELECT task_id FROM jobs_archive ORDER BY task_id")).scalars().all()
    if not left:
        op.drop_table("jobs_archive")
        return
    _log.warning(
        "the archived jobs %s stay in jobs_archive, because the queue has other jobs of their tables",
        ", ".join(map(str, left)),
    )
