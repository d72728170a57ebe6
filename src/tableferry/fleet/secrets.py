"""A secret of the workspace, by the name that a setting gives it."""

from __future__ import annotations

import base64

from tableferry import workspace
from tableferry.errors import TableferryError


def read(name: str, *, setting: str, holds: str) -> str:
    """Read a secret, named ``scope/key``, through the workspace's API; the message says what it holds.

    Raises:
        TableferryError: That's no name, or the secret can't be read.
    """
    scope, slash, key = name.partition("/")
    if not (scope and slash and key):
        raise TableferryError(f"{setting} is '{name}': write it as scope/key")
    client = workspace.client()
    try:
        value = client.secrets.get_secret(scope, key).value
    except Exception as error:
        trouble = workspace.trouble(error, client)
        if trouble is None:
            raise
        raise trouble.as_error(f"the secret {name} with {holds} can't be read") from error
    return base64.b64decode(value or "").decode("utf-8")
