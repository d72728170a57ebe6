"""List the readers of a table from the lineage that Unity Catalog records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tableferry import workspace
from tableferry.access.principals import Principals, is_person
from tableferry.errors import Refused, first_line
from tableferry.spark.catalog import SPARK_ERRORS, condition
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

DAYS = 90
# The maximum number of downstream tables and jobs that are looked up: each needs a request.
LOOKUP_LIMIT = 50

Rows = Callable[[str], Iterable[Sequence[Any]]]
"""Runs a query and returns its rows."""

# A query without a target table has an event too. The table is partitioned by event_date.
# The name isn't a parameter, because Delta 4.4's parser doesn't pass parameters to Spark 4.1's.
READERS_QUERY = """
SELECT DISTINCT created_by
FROM system.access.table_lineage
WHERE source_table_full_name = {table}
  AND event_date >= date_sub(current_date(), {days})
  AND created_by IS NOT NULL
"""

ENTITIES_QUERY = """
SELECT entity_type, entity_id
FROM system.access.table_lineage
WHERE source_table_full_name = {table}
  AND event_date >= date_sub(current_date(), {days})
  AND entity_id IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""

# Errors that every later table of this session would have too.
_LASTING = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NO_SUCH_CATALOG", "INSUFFICIENT_PERMISSIONS")


def list_reading_entities(rows: Rows, table: TableName, days: int) -> tuple[str, ...]:
    """Return the jobs, pipelines, notebooks and dashboards that read a table in the last ``days`` days.

    Each is a type and an id, such as ``job 123``. Lineage doesn't record all reads.

    Raises:
        Refused: The system table can't be read.
    """
    name = literal(".".join(table.parts).lower())
    try:
        found = rows(ENTITIES_QUERY.format(table=name, days=days))
        return tuple(f"{kind.lower().replace('_', ' ')} {identifier}" for kind, identifier in found)
    except SPARK_ERRORS as error:
        raise Refused("LINEAGE_NOT_READABLE", reason=first_line(error)) from error


@dataclass
class Lineage:
    """Readers of tables from the lineage system table, or from the lineage API if the table can't be read.

    The API returns downstream jobs and tables, but not the users who ran queries, so its list is incomplete.
    """

    client: WorkspaceClient
    rows: Rows
    principals: Principals
    say: Callable[[str], None]
    required: bool
    _unreadable: bool = False

    def readers(self, table: TableName) -> Iterable[str]:
        """Return the e-mail addresses of a table's readers.

        Raises:
            Refused: The system table can't be read, and is required.
        """
        if not self._unreadable:
            try:
                name = literal(".".join(table.parts).lower())
                rows = self.rows(READERS_QUERY.format(table=name, days=DAYS))
                return [row[0] for row in rows if is_person(row[0])]
            except SPARK_ERRORS as error:
                self._report(error)
        return list(self._by_api(table))

    def _report(self, error: Exception) -> None:
        """Warn that the system table can't be read, or raise an error if it is required."""
        reason = first_line(error)
        remedy = (
            "enable the system schema access, and grant USE CATALOG on system, USE SCHEMA on system.access "
            "and SELECT on system.access.table_lineage"
        )
        if self.required:
            raise Refused("LINEAGE_NOT_READABLE", reason=reason) from error
        self._unreadable = condition(error).startswith(_LASTING)
        self.say(
            f"system.access.table_lineage can't be read ({reason}): users who query a table get no "
            f"notification, only owners of downstream tables and jobs do. To notify all, {remedy}"
        )

    def _by_api(self, table: TableName) -> Iterator[str]:
        from databricks.sdk.errors import NotFound, PermissionDenied

        try:
            query = {"table_name": ".".join(table.parts), "include_entity_lineage": "true"}
            lineage = workspace.get_json(self.client, "/api/2.0/lineage-tracking/table-lineage", query)
        except (NotFound, PermissionDenied) as error:
            reason = first_line(error)
            self.say(f"the lineage API can't be read ({reason}): no downstream user gets a notification")
            return
        downstreams = lineage.get("downstreams", ())
        tables = [info for downstream in downstreams if (info := downstream.get("tableInfo"))]
        infos = [info for downstream in downstreams for info in downstream.get("jobInfos", ())]
        jobs = {info["job_id"] for info in infos if info.get("job_id")}
        if len(tables) + len(jobs) > LOOKUP_LIMIT:
            self.say(
                f"{table} has {len(tables)} tables and {len(jobs)} jobs downstream: the owners of only "
                f"{LOOKUP_LIMIT} of them were looked up"
            )
        owners = [(self._owner, info) for info in tables]
        runners = [(self._runner, job) for job in sorted(jobs)]
        for principal_of, item in [*owners, *runners][:LOOKUP_LIMIT]:
            try:
                yield from self.principals.addresses(principal_of(item))
            except (NotFound, PermissionDenied):
                # In another workspace, or not visible to this user.
                continue

    def _owner(self, info: Mapping[str, str]) -> str | None:
        names = [info.get(key, "") for key in ("catalog_name", "schema_name", "name")]
        return self.client.tables.get(quote(".".join(names), safe="")).owner

    def _runner(self, job_id: Any) -> str | None:
        job = self.client.jobs.get(int(job_id))
        return job.run_as_user_name or job.creator_user_name
