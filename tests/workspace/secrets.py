"""The secrets of the fake workspace."""

from __future__ import annotations

import base64

from tests.workspace.http import RefusedRequest, Request, route


class Secrets:
    """Secrets by scope and key.

    Attributes:
        secrets: The value of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[tuple[str, str], str] = {}

    @route("GET", "/api/2.0/secrets/get")
    def get_secret(self, request: Request) -> dict[str, str]:
        scope, key = request.query["scope"], request.query["key"]
        if (scope, key) not in self.secrets:
            raise RefusedRequest(
                404, "RESOURCE_DOES_NOT_EXIST", f"Secret does not exist with scope: {scope} and key: {key}"
            )
        value = base64.b64encode(self.secrets[scope, key].encode()).decode()
        return {"key": key, "value": value}
