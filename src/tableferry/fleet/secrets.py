"""Read a secret of the workspace that a setting names."""

from __future__ import annotations

import base64

from tableferry import workspace
from tableferry.errors import InputError, SessionError
from tableferry.errors.catalogue import as_sentence


def read(name: str, *, setting: str, purpose: str) -> str:
    """Return the secret ``scope/key`` from the workspace's API; the purpose is part of error messages.

    Raises:
        InputError: The name is invalid.
        SessionError: The secret can't be read.
    """
    scope, slash, key = name.partition("/")
    if not (scope and slash and key):
        raise InputError("SECRET_NAME_INVALID", setting=setting, text=name)
    client = workspace.client()
    try:
        value = client.secrets.get_secret(scope, key).value
    except Exception as error:
        trouble = workspace.request_failure(error, client)
        if trouble is None:
            raise
        raise SessionError(
            "SECRET_NOT_READABLE",
            secret=name,
            purpose=purpose,
            reason=trouble.reason,
            advice=as_sentence(trouble.remedy),
        ) from error
    return base64.b64decode(value or "").decode("utf-8")
