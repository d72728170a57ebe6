"""Finds who reads a table, in the lineage that Unity Catalog records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tableferry import workspace
from tableferry.errors import Refused, first_line
from tableferry.fleet.access.people import People, is_person
from tableferry.spark.catalog import SPARK_ERRORS, condition
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

DAYS = 90
# How many downstream tables and jobs are looked up at most: each takes a request.
LOOKED_UP = 50

Rows = Callable[[str], Iterable[Sequence[Any]]]
"""Runs a query and returns its rows."""

# A mere reader has an event too, without a target; the table is partitioned by event_date.
# The name is no parameter, for Delta 4.4's parser hands none on to Spark 4.1's.
_QUERY = """
SELECT DISTINCT created_by
FROM system.access.table_lineage
WHERE source_table_full_name = {table}
  AND event_date >= date_sub(current_date(), {days})
  AND created_by IS NOT NULL
"""

# Errors that will be the same for every later table of this session.
_LASTING = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NO_SUCH_CATALOG", "INSUFFICIENT_PERMISSIONS")


@dataclass
class Lineage:
    """Readers of tables by the lineage system table, and where that can't be read, by the lineage API.

    The API knows downstream jobs and tables, but not who ran queries, so it finds only a part.
    """

    client: WorkspaceClient
    rows: Rows
    people: People
    say: Callable[[str], None]
    required: bool
    _unreadable: bool = False

    def readers(self, table: TableName) -> Iterable[str]:
        """Return the mail addresses of who reads a table.

        Raises:
            Refused: The system table is required, and can't be read.
        """
        if not self._unreadable:
            try:
                name = literal(".".join(table.parts).lower())
                rows = self.rows(_QUERY.format(table=name, days=DAYS))
                return [row[0] for row in rows if is_person(row[0])]
            except SPARK_ERRORS as error:
                self._report(error)
        return list(self._by_api(table))

    def _report(self, error: Exception) -> None:
        """Warn that the system table can't be read, or refuse to go on without it."""
        reason = first_line(error)
        remedy = (
            "enable the system schema access, and grant USE CATALOG on system, USE SCHEMA on system.access "
            "and SELECT on system.access.table_lineage"
        )
        if self.required:
            raise Refused("LINEAGE_NOT_READABLE", reason=reason) from error
        self._unreadable = condition(error).startswith(_LASTING)
        self.say(
            f"system.access.table_lineage can't be read ({reason}), so that those who query a table get no "
            f"notification, but only those who own tables and run jobs downstream: {remedy}"
        )

    def _by_api(self, table: TableName) -> Iterator[str]:
        from databricks.sdk.errors import NotFound, PermissionDenied

        try:
            query = {"table_name": ".".join(table.parts), "include_entity_lineage": "true"}
            lineage = workspace.get_json(self.client, "/api/2.0/lineage-tracking/table-lineage", query)
        except (NotFound, PermissionDenied) as error:
            reason = first_line(error)
            self.say(
                f"the lineage API can't be asked ({reason}), so that nobody downstream gets a notification"
            )
            return
        downstreams = lineage.get("downstreams", ())
        tables = [info for downstream in downstreams if (info := downstream.get("tableInfo"))]
        infos = [info for downstream in downstreams for info in downstream.get("jobInfos", ())]
        jobs = {info["job_id"] for info in infos if info.get("job_id")}
        if len(tables) + len(jobs) > LOOKED_UP:
            self.say(
                f"{table} has {len(tables)} tables and {len(jobs)} jobs downstream: of these, {LOOKED_UP} "
                "were looked up"
            )
        owners = [(self._owner, info) for info in tables]
        runners = [(self._runner, job) for job in sorted(jobs)]
        for principal_of, item in [*owners, *runners][:LOOKED_UP]:
            try:
                yield from self.people.addresses(principal_of(item))
            except (NotFound, PermissionDenied):
                # In another workspace, or not visible to this user.
                continue

    def _owner(self, info: Mapping[str, str]) -> str | None:
        names = [info.get(key, "") for key in ("catalog_name", "schema_name", "name")]
        return self.client.tables.get(quote(".".join(names), safe="")).owner

    def _runner(self, job_id: Any) -> str | None:
        job = self.client.jobs.get(int(job_id))
        return job.run_as_user_name or job.creator_user_name
