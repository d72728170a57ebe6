"""Requests to a workspace that its client has no method for, or whose answers its classes would cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


def get(client: WorkspaceClient, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the workspace says, as it says it."""
    answer: Any = client.api_client.do("GET", path, query=dict(query), headers=_headers(client))
    return dict(answer)


def patch(client: WorkspaceClient, path: str, body: Mapping[str, Any]) -> None:
    """Change something."""
    client.api_client.do("PATCH", path, body=dict(body), headers=_headers(client))


def _headers(client: WorkspaceClient) -> dict[str, str]:
    # Where several workspaces share one address, this says which is meant.
    identity = getattr(client.config, "workspace_id", None)
    named = {"X-Databricks-Workspace-Id": str(identity)} if identity else {}
    return {"Accept": "application/json", **named}
