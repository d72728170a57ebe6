"""Objects of a bundle in the fake workspace except Unity Catalog and pipelines: files, jobs, permissions."""

from __future__ import annotations

import itertools
from pathlib import PurePosixPath
from typing import Any

from tests.workspace.http import RefusedRequest, Request, not_found, route

_HOME = "/Users/someone@example.com"
_ADMINS = {
    "group_name": "admins",
    "all_permissions": [{"permission_level": "CAN_MANAGE", "inherited": True}],
}


class Bundles:
    """Workspace files, jobs and permissions.

    Attributes:
        documents: Workspace files by path, without the optional prefix ``/Workspace``.
        jobs: By id.
        permissions: Permissions that were set directly, by ``/kind/id``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.documents: dict[str, bytes] = {}
        self.jobs: dict[int, dict[str, Any]] = {}
        self.permissions: dict[str, list[dict[str, Any]]] = {}
        self._ids = itertools.count(1001)
        self._objects: dict[str, int] = {}
        for folder in ("/", "/Users", _HOME):
            self._objects[folder] = next(self._ids)

    @route("GET", "/api/2.0/workspace/get-status")
    def get_status(self, request: Request) -> dict[str, Any]:
        path = _canonical(request.query["path"])
        if path not in self._objects:
            raise RefusedRequest(
                404, "RESOURCE_DOES_NOT_EXIST", f"Path ({request.query['path']}) doesn't exist."
            )
        kind = "FILE" if path in self.documents else "DIRECTORY"
        identity = self._objects[path]
        return {
            "object_type": kind,
            "path": request.query["path"],
            "object_id": identity,
            "resource_id": str(identity),
        }

    @route("POST", "/api/2.0/workspace/mkdirs")
    def mkdirs(self, request: Request) -> dict[str, Any]:
        path = PurePosixPath(_canonical(request.json["path"]))
        for folder in (path, *path.parents):
            if str(folder) in self.documents:
                raise RefusedRequest(400, "RESOURCE_ALREADY_EXISTS", f"{folder} is a file")
            self._objects.setdefault(str(folder), next(self._ids))
        return {}

    @route("POST", "/api/2.0/workspace-files/import-file{path...}")
    def import_file(self, request: Request) -> dict[str, Any]:
        path = _canonical(request.names["path"])
        if str(PurePosixPath(path).parent) not in self._objects:
            raise RefusedRequest(
                404, "RESOURCE_DOES_NOT_EXIST", f"The parent folder of {path} does not exist."
            )
        if path in self._objects and (path not in self.documents or request.query.get("overwrite") != "true"):
            raise RefusedRequest(409, "RESOURCE_ALREADY_EXISTS", f"{path} already exists.")
        self._objects.setdefault(path, next(self._ids))
        self.documents[path] = request.body
        return {}

    @route("GET", "/api/2.0/workspace/export")
    def export(self, request: Request) -> bytes:
        path = _canonical(request.query["path"])
        if path not in self.documents or request.query.get("direct_download") != "true":
            raise RefusedRequest(404, "RESOURCE_DOES_NOT_EXIST", f"Path ({path}) doesn't exist.")
        return self.documents[path]

    @route("POST", "/api/2.0/workspace/delete")
    def delete_object(self, request: Request) -> dict[str, Any]:
        path = _canonical(request.json["path"])
        if path not in self._objects:
            raise RefusedRequest(404, "RESOURCE_DOES_NOT_EXIST", f"Path ({path}) doesn't exist.")
        inside = [member for member in self._objects if member.startswith(f"{path}/")]
        if inside and not request.json.get("recursive"):
            raise RefusedRequest(400, "DIRECTORY_NOT_EMPTY", f"Folder ({path}) is not empty")
        for member in (path, *inside):
            del self._objects[member]
            self.documents.pop(member, None)
        return {}

    @route("POST", "/api/2.2/jobs/create")
    def create_job(self, request: Request) -> dict[str, int]:
        identity = next(self._ids)
        self._put_job(identity, request.json)
        return {"job_id": identity}

    @route("POST", "/api/2.2/jobs/reset")
    def reset_job(self, request: Request) -> dict[str, Any]:
        self._job(request.json["job_id"])
        self._put_job(request.json["job_id"], request.json["new_settings"])
        return {}

    @route("GET", "/api/2.2/jobs/get")
    def get_job(self, request: Request) -> dict[str, Any]:
        return self._job(int(request.query["job_id"]))

    @route("POST", "/api/2.2/jobs/delete")
    def delete_job(self, request: Request) -> dict[str, Any]:
        self._job(request.json["job_id"])
        del self.jobs[request.json["job_id"]]
        return {}

    @route("GET", "/api/2.0/permissions/{kind}/{id}")
    def get_permissions(self, request: Request) -> dict[str, Any]:
        kind, identity = request.names["kind"], request.names["id"]
        listed = self.permissions.get(f"/{kind}/{identity}", [])
        return {
            "object_id": f"/{kind}/{identity}",
            "object_type": {"jobs": "job", "directories": "directory"}.get(kind, kind),
            "access_control_list": [*listed, _ADMINS],
        }

    @route("PUT", "/api/2.0/permissions/{kind}/{id}")
    def set_permissions(self, request: Request) -> dict[str, Any]:
        kind, identity = request.names["kind"], request.names["id"]
        given = request.json["access_control_list"]
        if (
            kind in ("jobs", "pipelines")
            and [entry["permission_level"] for entry in given].count("IS_OWNER") != 1
        ):
            raise RefusedRequest(400, "INVALID_PARAMETER_VALUE", f"{kind} must have exactly one owner.")
        self.permissions[f"/{kind}/{identity}"] = [
            {
                **{key: value for key, value in entry.items() if key != "permission_level"},
                "all_permissions": [{"permission_level": entry["permission_level"], "inherited": False}],
            }
            for entry in given
        ]
        permissions: dict[str, Any] = self.get_permissions(request)
        return permissions

    def _put_job(self, identity: int, settings: dict[str, Any]) -> None:
        for task in settings.get("tasks", ()):
            for key, value in {
                "run_if": "ALL_SUCCESS",
                "timeout_seconds": 0,
                "email_notifications": {},
            }.items():
                task.setdefault(key, value)
        defaults = {"email_notifications": {}, "webhook_notifications": {}, "timeout_seconds": 0}
        self.jobs[identity] = {
            "job_id": identity,
            "creator_user_name": "someone@example.com",
            "run_as_user_name": "someone@example.com",
            "settings": {**defaults, "max_concurrent_runs": 1, "format": "MULTI_TASK", **settings},
        }

    def _job(self, identity: int) -> dict[str, Any]:
        if identity not in self.jobs:
            raise not_found(f"Job {identity} does not exist.")
        return self.jobs[identity]


def _canonical(path: str) -> str:
    """Return a workspace path in its form without ``/Workspace``."""
    whole = PurePosixPath("/", path.lstrip("/"))
    return str(PurePosixPath("/", *whole.parts[2:])) if whole.parts[1:2] == ("Workspace",) else str(whole)
