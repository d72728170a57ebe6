"""Unity Catalog in the fake workspace: schemas, volumes and grants on them."""

from __future__ import annotations

import itertools
from typing import Any

from tests.workspace.http import RefusedRequest, Request, route
from tests.workspace.volumes import Volumes

_UC = "/api/2.1/unity-catalog"
_OWNER = "someone@example.com"
_NOT_IN_ALL = {"MANAGE", "EXTERNAL_USE_SCHEMA", "EXTERNAL_USE_LOCATION"}


class Catalog(Volumes):
    """Schemas and volumes by full name, and the grants on them.

    Attributes:
        catalogs: The only catalogs in which schemas can be created.
        schemas: By ``catalog.schema``.
        volumes: By ``catalog.schema.volume``.
        grants: Privileges by kind and full name, and by principal.
        page_of_grants: The number of principals per page.
        revoking_all_revokes_each: Whether revoking ALL_PRIVILEGES revokes the implied ones, too.
        one_way_only: Whether a change that adds and removes is refused.
        strangers: Principals that don't exist.
    """

    def __init__(self) -> None:
        super().__init__()
        self.catalogs = {"main"}
        self.schemas: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.grants: dict[tuple[str, str], dict[str, set[str]]] = {}
        self.page_of_grants = 100
        self.revoking_all_revokes_each = True
        self.one_way_only = False
        self.strangers: set[str] = set()
        self._numbers = itertools.count(1)

    @route("POST", f"{_UC}/schemas")
    def create_schema(self, request: Request) -> dict[str, Any]:
        given = request.json
        catalog, name = given["catalog_name"], given["name"].lower()
        if catalog not in self.catalogs:
            raise RefusedRequest(404, "CATALOG_DOES_NOT_EXIST", f"Catalog '{catalog}' does not exist.")
        self._new(self.schemas, f"{catalog}.{name}", "SCHEMA_ALREADY_EXISTS")
        return self._made(self.schemas, "schema", {**given, "name": name}, f"{catalog}.{name}")

    @route("POST", f"{_UC}/volumes")
    def create_volume(self, request: Request) -> dict[str, Any]:
        given = request.json
        catalog, schema, name = given["catalog_name"], given["schema_name"].lower(), given["name"].lower()
        self._known(self.schemas, f"{catalog}.{schema}", "Schema")
        self._new(self.volumes, f"{catalog}.{schema}.{name}", "VOLUME_ALREADY_EXISTS")
        self.make_volume(catalog, schema, name)
        volume = {**given, "schema_name": schema, "name": name}
        return self._made(self.volumes, "volume", volume, f"{catalog}.{schema}.{name}")

    @route("GET", f"{_UC}/schemas/{{name}}")
    def get_schema(self, request: Request) -> dict[str, Any]:
        return self._known(self.schemas, request.names["name"], "Schema")

    @route("GET", f"{_UC}/volumes/{{name}}")
    def get_volume(self, request: Request) -> dict[str, Any]:
        return self._known(self.volumes, request.names["name"], "Volume")

    @route("PATCH", f"{_UC}/schemas/{{name}}")
    def update_schema(self, request: Request) -> dict[str, Any]:
        schema = self._known(self.schemas, request.names["name"], "Schema")
        schema.update({key: value for key, value in request.json.items() if key != "new_name"})
        return schema

    @route("PATCH", f"{_UC}/volumes/{{name}}")
    def update_volume(self, request: Request) -> dict[str, Any]:
        volume = self._known(self.volumes, request.names["name"], "Volume")
        volume.update({key: value for key, value in request.json.items() if key != "new_name"})
        return volume

    @route("DELETE", f"{_UC}/schemas/{{name}}")
    def delete_schema(self, request: Request) -> None:
        name = request.names["name"]
        self._known(self.schemas, name, "Schema")
        inside = [volume for volume in self.volumes if volume.startswith(f"{name}.")]
        if inside and request.query.get("force") != "true":
            raise RefusedRequest(
                400, "INVALID_STATE", f"Cannot delete schema '{name}', it is not empty: {inside}"
            )
        del self.schemas[name]

    @route("DELETE", f"{_UC}/volumes/{{name}}")
    def delete_volume(self, request: Request) -> None:
        name = request.names["name"]
        self._known(self.volumes, name, "Volume")
        self.drop_volume(*name.split("."))
        del self.volumes[name]

    @route("GET", f"{_UC}/permissions/{{kind}}/{{name}}")
    def get_grants(self, request: Request) -> dict[str, Any]:
        granted = self.grants.get(self._securable(request), {})
        listed = [
            {"principal": principal, "privileges": sorted(privileges)}
            for principal, privileges in granted.items()
            if privileges
        ]
        return self.paged(listed, request)

    @route("PATCH", f"{_UC}/permissions/{{kind}}/{{name}}")
    def update_grants(self, request: Request) -> dict[str, Any]:
        granted = self.grants.setdefault(self._securable(request), {})
        for change in request.json["changes"]:
            if change["principal"] in self.strangers:
                message = f"Could not find principal with name {change['principal']}"
                raise RefusedRequest(404, "PRINCIPAL_DOES_NOT_EXIST", message)
            if change.get("add") and change.get("remove") and self.one_way_only:
                raise RefusedRequest(400, "INVALID_PARAMETER_VALUE", "either add or remove")
        for change in request.json["changes"]:
            privileges = granted.setdefault(change["principal"], set())
            if "ALL_PRIVILEGES" in change.get("remove", ()) and self.revoking_all_revokes_each:
                privileges.intersection_update(_NOT_IN_ALL)
            privileges.difference_update(change.get("remove", ()))
            privileges.update(change.get("add", ()))
        grants: dict[str, Any] = self.get_grants(request)
        return grants

    def paged(self, listed: list[dict[str, Any]], request: Request) -> dict[str, Any]:
        """Return a page of assignments: all of them, unless pages are asked for."""
        if "max_results" not in request.query:
            return {"privilege_assignments": listed}
        start = int(request.query.get("page_token", 0))
        more = {"next_page_token": str(start + self.page_of_grants)} if listed[start:] else {}
        return {"privilege_assignments": listed[start : start + self.page_of_grants], **more}

    def securables(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What grants can be on, by kind and full name."""
        return {"schema": self.schemas, "volume": self.volumes}

    def _securable(self, request: Request) -> tuple[str, str]:
        kind, name = request.names["kind"].lower(), request.names["name"]
        self._known(self.securables()[kind], name, kind.capitalize())
        return kind, name

    def _made(
        self, table: dict[str, dict[str, Any]], kind: str, given: dict[str, Any], full_name: str
    ) -> dict[str, Any]:
        table[full_name] = {
            **given,
            "full_name": full_name,
            f"{kind}_id": f"{kind}-{next(self._numbers)}",
            "owner": _OWNER,
            "created_by": _OWNER,
            "created_at": 1767225600000,
            "updated_at": 1767225600000,
        }
        return table[full_name]

    def _known(self, table: dict[str, dict[str, Any]], name: str, kind: str) -> dict[str, Any]:
        if name not in table:
            code = f"{kind.upper()}_DOES_NOT_EXIST"
            raise RefusedRequest(404, code, f"{kind} '{name}' does not exist.")
        return table[name]

    def _new(self, table: dict[str, dict[str, Any]], name: str, code: str) -> None:
        if name in table:
            raise RefusedRequest(409, code, f"'{name}' already exists")
