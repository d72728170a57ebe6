"""Users and groups of the fake workspace, through SCIM."""

from __future__ import annotations

import re
from typing import Any

from tests.workspace.http import RefusedRequest, Request, not_found, route

_SCIM = "/api/2.0/preview/scim/v2"
_BY_NAME = re.compile(r'displayName eq "((?:[^"\\]|\\.)*)"')


class People:
    """Users by id, and groups by name.

    Attributes:
        users: Each one's user name.
        groups: Each one's members, as ``Users/1``, ``Groups/name`` or ``ServicePrincipals/2``.
        hidden: Whether only administrators see who is in a group.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, str] = {}
        self.groups: dict[str, list[str]] = {}
        self.hidden = False

    @route("GET", f"{_SCIM}/Groups")
    def list_groups(self, request: Request) -> dict[str, Any]:
        if self.hidden:
            raise RefusedRequest(403, "PERMISSION_DENIED", "Only admins can list groups")
        match = _BY_NAME.fullmatch(request.query.get("filter", ""))
        if match is None:
            raise RefusedRequest(400, "INVALID_PARAMETER_VALUE", "only one filter is known here")
        name = re.sub(r"\\(.)", r"\1", match[1])
        groups = [self._group(name)] if name in self.groups and int(request.query["startIndex"]) == 1 else []
        return {"Resources": groups, "totalResults": len(groups)}

    @route("GET", f"{_SCIM}/Groups/{{name}}")
    def get_group(self, request: Request) -> dict[str, Any]:
        if request.names["name"] not in self.groups:
            raise not_found(f"Group with id {request.names['name']} not found.")
        return self._group(request.names["name"])

    @route("GET", f"{_SCIM}/Users/{{id}}")
    def get_user(self, request: Request) -> dict[str, Any]:
        if request.names["id"] not in self.users:
            raise not_found(f"User with id {request.names['id']} not found.")
        return {"id": request.names["id"], "userName": self.users[request.names["id"]]}

    def _group(self, name: str) -> dict[str, Any]:
        members = [
            {"$ref": ref, "value": ref.rpartition("/")[2], "display": "A member"} for ref in self.groups[name]
        ]
        return {"id": name, "displayName": name, "members": members}
