"""Tables of Unity Catalog in the fake workspace: owners, grants on them and above them, and their lineage."""

from __future__ import annotations

import re
from typing import Any

from tests.workspace.catalog import Catalog
from tests.workspace.http import RefusedRequest, Request, route

from tableferry.spark.tables import TableName

_UC = "/api/2.1/unity-catalog"


class Tables(Catalog):
    """Tables by full name, which tests add.

    Attributes:
        tables: The answer of the API for each, including ``owner``.
        lineage: The tables downstream of each, as the lineage API returns them.
        closed: Names of tables, or ``lineage``, whose requests are denied.
        foreign_catalogs: The names of foreign catalogs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, dict[str, Any]] = {}
        self.lineage: dict[str, list[dict[str, Any]]] = {}
        self.closed: set[str] = set()
        self.foreign_catalogs: set[str] = set()

    def put_table(self, name: str, owner: str | None = None, /, **grants: set[str]) -> None:
        """Add a table with an owner, and grants by principal."""
        catalog, schema, table = name.split(".")
        self.tables[name] = {"catalog_name": catalog, "schema_name": schema, "name": table, "full_name": name}
        self.tables[name] |= {"owner": owner} if owner else {}
        self.grants[("table", name)] = {who: set(privileges) for who, privileges in grants.items()}

    def rename_table(self, name: str, to: str) -> None:
        """Give a table another name, under which it keeps its owner and its grants."""
        table, grants = self.tables.pop(name), self.grants.pop(("table", name))
        self.tables[to] = {**table, "name": to.split(".")[2], "full_name": to}
        self.grants["table", to] = grants

    def follow(self, statement: str, schema: str) -> None:
        """Give the tables of a schema the effect of a statement that creates, renames or drops one."""

        def full(name: str) -> str:
            return f"{schema}.{TableName.parse(name).table}"

        if created := re.match(r"CREATE OR REPLACE VIEW (\S+) ", statement):
            if full(created[1]) not in self.tables:
                self.put_table(full(created[1]), "someone@example.com")
                self.tables[full(created[1])]["table_type"] = "VIEW"
        elif renamed := re.match(r"ALTER (?:TABLE|VIEW) (\S+) RENAME TO (\S+)", statement):
            self.rename_table(full(renamed[1]), full(renamed[2]))
        elif dropped := re.match(r"DROP VIEW (\S+)", statement):
            del self.tables[full(dropped[1])]

    def granted(self, name: str) -> dict[str, set[str]]:
        """Return a copy of who was granted what on a table."""
        grants = self.grants.get(("table", name), {})
        return {who: set(privileges) for who, privileges in grants.items() if privileges}

    def securables(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {**super().securables(), "table": self.tables}

    @route("GET", f"{_UC}/catalogs")
    def list_catalogs(self, request: Request) -> dict[str, Any]:
        kinds = dict.fromkeys(self.catalogs, "MANAGED_CATALOG") | dict.fromkeys(
            self.foreign_catalogs, "FOREIGN_CATALOG"
        )
        return {"catalogs": [{"name": name, "catalog_type": kind} for name, kind in sorted(kinds.items())]}

    @route("GET", f"{_UC}/tables/{{name}}/exists")
    def has_table(self, request: Request) -> dict[str, Any]:
        return {"table_exists": request.names["name"] in self.tables}

    @route("GET", f"{_UC}/catalogs/{{name}}")
    def get_catalog(self, request: Request) -> dict[str, Any]:
        name = request.names["name"]
        if name in self.closed:
            raise RefusedRequest(
                403, "PERMISSION_DENIED", f"User does not have USE CATALOG on Catalog '{name}'"
            )
        if name not in self.catalogs:
            raise RefusedRequest(404, "CATALOG_DOES_NOT_EXIST", f"Catalog '{name}' does not exist.")
        return {"name": name, "catalog_type": "MANAGED_CATALOG"}

    @route("GET", f"{_UC}/tables/{{name}}")
    def get_table(self, request: Request) -> dict[str, Any]:
        return self._open(request.names["name"])

    @route("DELETE", f"{_UC}/tables/{{name}}")
    def delete_table(self, request: Request) -> None:
        self._open(request.names["name"])
        del self.tables[request.names["name"]]

    @route("PATCH", f"{_UC}/tables/{{name}}")
    def update_table(self, request: Request) -> dict[str, Any]:
        table = self._open(request.names["name"])
        owner = request.json["owner"]
        if owner in self.strangers:
            raise RefusedRequest(404, "PRINCIPAL_DOES_NOT_EXIST", f"Could not find principal {owner}")
        table["owner"] = owner
        return table

    @route("GET", f"{_UC}/effective-permissions/table/{{name}}")
    def get_effective(self, request: Request) -> dict[str, Any]:
        table = self._open(request.names["name"])
        schema = f"{table['catalog_name']}.{table['schema_name']}"
        above = [("catalog", table["catalog_name"]), ("schema", schema)]
        by: dict[str, list[dict[str, Any]]] = {}
        for kind, name in (*above, ("table", table["full_name"])):
            for principal, privileges in self.grants.get((kind, name), {}).items():
                for privilege in sorted(privileges):
                    here = kind == "table"
                    origin = (
                        {} if here else {"inherited_from_type": kind.upper(), "inherited_from_name": name}
                    )
                    by.setdefault(principal, []).append({"privilege": privilege, **origin})
        listed = [{"principal": who, "privileges": privileges} for who, privileges in by.items()]
        return self.paged(listed, request)

    @route("GET", "/api/2.0/lineage-tracking/table-lineage")
    def get_lineage(self, request: Request) -> dict[str, Any]:
        name = request.query["table_name"]
        if "lineage" in self.closed:
            raise RefusedRequest(403, "PERMISSION_DENIED", "User does not have BROWSE")
        self._open(name)
        return {"downstreams": self.lineage[name]} if name in self.lineage else {}

    def _open(self, name: str) -> dict[str, Any]:
        if name in self.closed:
            raise RefusedRequest(403, "PERMISSION_DENIED", f"User does not have MANAGE on Table '{name}'")
        return self._known(self.tables, name, "Table")

    def _securable(self, request: Request) -> tuple[str, str]:
        kind, name = super()._securable(request)
        if name in self.closed:
            raise RefusedRequest(403, "PERMISSION_DENIED", f"User does not have MANAGE on Table '{name}'")
        return kind, name
