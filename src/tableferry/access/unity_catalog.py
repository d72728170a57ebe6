"""Owners, readers and privileges of Unity Catalog tables, through its REST API, and their tags, by SQL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tableferry import workspace
from tableferry.access import grants, tags
from tableferry.access.grants import Change, Grants
from tableferry.access.lineage import Lineage, Rows, list_reading_entities
from tableferry.access.principals import Principals
from tableferry.access.users_file import Users, key
from tableferry.errors import Refused, TableError, first_line
from tableferry.errors.catalogue import as_sentence
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.session import to_stderr
from tableferry.spark.tables import METASTORES, TableName

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.catalog import TableInfo

_PERMISSIONS = "/api/2.1/unity-catalog/permissions/table/"
_EFFECTIVE = "/api/2.1/unity-catalog/effective-permissions/table/"
# The first changes grants, the second restores privileges that a revocation also removed, the third finds
# nothing to change; one more in reserve.
_ROUNDS = 4


class UnityAccess:
    """Grants, owners, tags and lineage of Unity Catalog.

    Privileges are read and written as JSON. The client's classes drop each privilege that their version
    doesn't have, and a dropped privilege couldn't be granted again.
    """

    def __init__(
        self,
        client: WorkspaceClient,
        rows: Rows,
        *,
        users: Users | None = None,
        require_lineage: bool = False,
        say: Callable[[str], None] = to_stderr,
    ) -> None:
        """Store the client and `rows`, which runs SQL; `say` prints each warning once.

        Users of tables are those in the lineage, which may be required, and those in `users`.
        """
        self._client = client
        self._rows = rows
        self._users = users or {}
        self._warned: set[str] = set()
        self._print = say
        self._principals = Principals(client, self._say)
        self._lineage = Lineage(client, rows, self._principals, self._say, required=require_lineage)

    def owners(self, table: TableName) -> tuple[str, ...]:
        """Return the e-mail address of the owner, or those of the owning group's members."""
        return self._principals.addresses(self._info(table).owner)

    def downstream_users(self, table: TableName) -> tuple[str, ...]:
        """Return the e-mail addresses of the table's readers in the last 90 days, without its owners."""
        owners = {self._me, *self.owners(table)}
        with self._explaining(f"The lineage of {table} can't be read"):
            readers = {*self._lineage.readers(table), *self._users.get(key(table), ())}
        return tuple(sorted(readers - owners))

    def keeps_rights(self, table: TableName) -> bool:
        """Return True: every table has grants."""
        return True

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        """Return the grants that `take` would revoke, and other write privileges, as JSON."""
        rights = grants.writing_privileges(
            self._granted(table), self._inherited(table), self._info(table).owner, self._me
        )
        return rights if rights["grants"] or rights["inherited"] else {}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Revoke these grants; grants that are revoked already are no error."""
        self._change_until_done(table, lambda granted: grants.privileges_to_revoke(granted, rights))

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Grant the revoked privileges, and revoke their replacement."""
        for principal in grants.revoked_by_others(self._granted(table), rights):
            self._say(
                f"{table}: a user revoked grants of {principal} while writes were blocked, so not all of the "
                "earlier grants are restored: grant the missing ones"
            )
        self._change_until_done(table, lambda granted: grants.privileges_to_restore(granted, rights))

    def carry(self, source: TableName, target: TableName) -> None:
        """Copy a table's tags and grants to another one, and its owner last: only the owner can grant.

        A view keeps its other grants, and shows only the rows that its table shows. Tags that can't be read
        are reported, and the rest is copied.

        Raises:
            Refused: The source has a row filter or a column mask that the target lacks, or tags that can't be
                set on the target.
        """
        old, new = self._info(source), self._info(target)
        is_view = _is_view(new)
        if not is_view and (hiding := _protections(old).keys() - _protections(new).keys()):
            raise Refused("TARGET_WITHOUT_PROTECTION", table=source, hiding=sorted(hiding), target=target)
        self._carry_tags_and_grants(source, target, is_view=is_view)
        if old.owner and old.owner != new.owner:
            with self._explaining(f"The owner of {target} can't be set to {old.owner}, who owns {source}"):
                self._client.tables.update(_path(target), owner=old.owner)

    def carry_to_view(self, source: TableName, view: TableName) -> None:
        """Copy a table's tags and grants to a view, which keeps its owner and its other grants.

        The view reads its table with its owner's rights, so another owner might not be able to read it.

        Raises:
            Refused: A tag can't be set on the view.
        """
        self._carry_tags_and_grants(source, view, is_view=True)

    def _carry_tags_and_grants(self, source: TableName, target: TableName, *, is_view: bool) -> None:
        # Policies hide rows and columns by tags, so the tags are set before readers get grants.
        self._carry_tags(source, target, is_view=is_view)
        granted = self._granted(source)
        changes = grants.changes_for_view if is_view else grants.changes_to_match
        self._change_until_done(target, lambda before: changes(granted, before))

    def list_protections(self, table: TableName) -> Mapping[str, str]:
        """Return the row filter and the column masks of a table, each with its function and arguments."""
        return _protections(self._info(table))

    def list_reading_entities(self, table: TableName, days: int) -> tuple[str, ...]:
        """Return the jobs and other entities that read a table, as `lineage.list_reading_entities`."""
        return list_reading_entities(self._rows, table, days)

    def read_owner(self, table: TableName) -> str:
        """Return the owner of a table, as the catalog spells it."""
        return self._info(table).owner or ""

    @property
    def current_user(self) -> str:
        """The user whose login the client has."""
        return self._me

    def require_unprotected(self, source: TableName, target: TableName) -> None:
        """Refuse a protected table whose new table would be in a catalog without protection.

        Raises:
            Refused: The table has a row filter or a column mask.
        """
        if hiding := _protections(self._info(source)):
            raise Refused(
                "TARGET_CATALOG_WITHOUT_PROTECTION", table=source, hiding=sorted(hiding), target=target
            )

    def _carry_tags(self, source: TableName, target: TableName, *, is_view: bool) -> None:
        try:
            wanted = list(self._rows(tags.query(source)))
            existing = self._rows(tags.query(target)) if wanted else ()
        except SPARK_ERRORS as error:
            self._say(
                f"the tags of {source} and {target} can't be read ({first_line(error)}), so none are "
                "copied: grant SELECT on table_tags and column_tags in their catalogs' information_schema, "
                f"and set the tags of {source} on {target}"
            )
            return
        failed = [
            failure
            for column, values in tags.missing(wanted, existing).items()
            for failure in self._set_tags(target, column, values, is_view=is_view)
        ]
        if failed:
            raise Refused("TAGS_NOT_COPIED", source=source, table=target, failed="; ".join(failed))

    def _set_tags(
        self, table: TableName, column: str, values: Mapping[str, str], *, is_view: bool
    ) -> list[str]:
        """Set tags, and return the tags that can't be set, each with the reason."""
        try:
            list(self._rows(tags.statement(table, column, values, is_view=is_view)))
        except SPARK_ERRORS as error:
            if len(values) > 1:
                # One invalid tag fails the whole statement.
                one_by_one = ({tag: value} for tag, value in values.items())
                return [
                    why for one in one_by_one for why in self._set_tags(table, column, one, is_view=is_view)
                ]
            return [f"{' '.join(values)}{f' of column {column}' if column else ''} ({first_line(error)})"]
        return []

    def _change_until_done(self, table: TableName, changes: Callable[[Grants], list[Change]]) -> None:
        """Change grants until no change remains, without principals that were deleted."""
        gone: set[str] = set()
        for _ in range(_ROUNDS):
            left = [change for change in changes(self._granted(table)) if change.principal not in gone]
            if not left:
                return
            gone |= self._change(table, left)
        whose = ", ".join(change.principal for change in left)
        raise TableError("GRANTS_CHANGED_CONCURRENTLY", table=table, principals=whose)

    def _change(self, table: TableName, changes: list[Change]) -> set[str]:
        """Change grants, in one request if the workspace accepts it; return the deleted principals."""
        from databricks.sdk.errors import BadRequest, NotFound

        with self._explaining(f"The grants on {table} can't be changed"):
            try:
                self._patch(table, *changes)
            except (BadRequest, NotFound):
                # An unknown principal fails the whole request. One that adds and removes may be refused.
                return {change.principal for change in changes if not self._change_one(table, change)}
        return set()

    def _change_one(self, table: TableName, change: Change) -> bool:
        from databricks.sdk.errors.base import DatabricksError

        try:
            for part in (
                Change(change.principal, add=change.add),
                Change(change.principal, remove=change.remove),
            ):
                if part:
                    self._patch(table, part)
        except DatabricksError as error:
            if "PRINCIPAL" not in (error.error_code or ""):
                raise
            self._say(f"{table}: {change.principal} was deleted, and its grants too")
            return False
        return True

    def _patch(self, table: TableName, *changes: Change) -> None:
        body = {
            "changes": [
                {
                    "principal": change.principal,
                    **({"add": sorted(change.add)} if change.add else {}),
                    **({"remove": sorted(change.remove)} if change.remove else {}),
                }
                for change in changes
            ]
        }
        workspace.patch_json(self._client, _PERMISSIONS + _path(table), body)

    def _granted(self, table: TableName) -> Grants:
        return {
            assignment["principal"]: frozenset(assignment.get("privileges", ()))
            for assignment in self._pages(_PERMISSIONS, table)
        }

    def _inherited(self, table: TableName) -> Mapping[str, list[str]]:
        """Return the write privileges that are granted on the schema or the catalog, by principal."""
        sources: dict[str, list[str]] = {}
        for assignment in self._pages(_EFFECTIVE, table):
            for privilege in assignment.get("privileges", ()):
                if privilege["privilege"] in grants.WRITING and privilege.get("inherited_from_name"):
                    kind = privilege.get("inherited_from_type", "securable").lower()
                    source = f"{privilege['privilege']} on {kind} {privilege['inherited_from_name']}"
                    sources.setdefault(assignment["principal"], []).append(source)
        return sources

    def _pages(self, path: str, table: TableName) -> Iterator[dict[str, Any]]:
        query = {"max_results": "0"}
        with self._explaining(f"The grants on {table} can't be read"):
            while True:
                # A page that isn't the last can be empty.
                page = workspace.get_json(self._client, path + _path(table), query)
                yield from page.get("privilege_assignments", ())
                if not page.get("next_page_token"):
                    return
                query["page_token"] = page["next_page_token"]

    def _info(self, table: TableName) -> TableInfo:
        with self._explaining(f"{table} can't be read"):
            return self._client.tables.get(_path(table))

    @cached_property
    def _me(self) -> str:
        with self._explaining("The workspace doesn't return the current user"):
            return self._client.current_user.me().user_name or ""

    @contextmanager
    def _explaining(self, failure: str) -> Iterator[None]:
        """Replace errors of the client by errors with a remedy."""
        try:
            yield
        except Exception as error:
            trouble = workspace.request_failure(error, self._client)
            if trouble is None:
                raise
            match trouble.kind:
                case "denied":
                    raise TableError(
                        "UNITY_CATALOG_DENIED",
                        failure=failure,
                        reason=trouble.reason,
                        user=self._client.config.username or "the user that runs this",
                    ) from error
                case "logged out" | "unreachable":
                    raise trouble.as_error(failure) from error
                case _:
                    raise TableError(
                        "UNITY_CATALOG_FAILED",
                        failure=failure,
                        reason=trouble.reason,
                        advice=as_sentence(trouble.remedy),
                    ) from error

    def _say(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._print(sentence)


def _path(table: TableName) -> str:
    if len(table.parts) != 3:
        raise TableError("TABLE_WITHOUT_CATALOG", table=table)
    return quote(".".join(table.parts), safe="")


def _protections(info: TableInfo) -> dict[str, str]:
    """Return the functions of a table's row filter and column masks, by a description of each."""
    found = {}
    if info.row_filter:
        found["a row filter"] = _call(info.row_filter.function_name, info.row_filter.input_column_names)
    for column in info.columns or ():
        if column.mask:
            inputs = [column.name or "", *(column.mask.using_column_names or ())]
            found[f"a mask on column {column.name}"] = _call(column.mask.function_name, inputs)
    return found


def _call(function: str | None, inputs: Sequence[str] | None) -> str:
    return f"{function}({', '.join(inputs or ())})"


def _is_view(info: TableInfo) -> bool:
    return info.table_type is not None and info.table_type.value == "VIEW"


def is_in_unity_catalog(catalog: str) -> bool:
    """Return whether a catalog is in the Unity Catalog of the session's workspace.

    Raises:
        TableferryError: The workspace doesn't report it.
    """
    if catalog.lower() in METASTORES:
        return False
    choice = session.choose(os.environ, databricks_connect=session.has_databricks_connect())
    if choice.kind not in ("runtime", "databricks-connect"):
        return False
    client = workspace.client()
    try:
        client.catalogs.get(catalog)
    except Exception as error:
        trouble = workspace.request_failure(error, client)
        if trouble is None:
            raise
        if trouble.kind == "missing":
            # The session's configuration defines the catalog.
            return False
        if trouble.kind != "denied":
            raise trouble.as_error(
                f"{client.config.host} doesn't report whether it has catalog {catalog}"
            ) from error
    return True
