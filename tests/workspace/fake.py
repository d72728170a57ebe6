"""The fake workspace as a whole."""

from __future__ import annotations

import copy
from typing import Any

from tests.workspace.bundles import Bundles
from tests.workspace.catalog import Catalog
from tests.workspace.http import Answer, Request, Server, route
from tests.workspace.people import People
from tests.workspace.pipelines import Pipelines
from tests.workspace.secrets import Secrets
from tests.workspace.tables import Tables
from tests.workspace.volumes import Volumes

USER = "someone@example.com"


class FakeWorkspace(Bundles, Pipelines, Tables, People, Catalog, Volumes, Secrets, Server):
    """An empty workspace with one user."""

    def deployed(self) -> dict[str, dict[Any, Any]]:
        """Return a copy of a bundle's resources, by kind."""
        kinds = ("jobs", "pipelines", "schemas", "volumes")
        return {kind: copy.deepcopy(getattr(self, kind)) for kind in kinds}

    @route("GET", "/.well-known/databricks-config")
    def discovery(self, request: Request) -> dict[str, str]:
        return {"oidc_endpoint": f"{self.url}/oidc", "workspace_id": "1234567890"}

    @route("GET", "/api/2.0/preview/scim/v2/Me")
    def me(self, request: Request) -> Answer:
        return Answer({"id": "1", "userName": USER}, headers={"X-Databricks-Org-Id": "1234567890"})
