"""Where the mail server's password is: in the settings, the environment, or a secret of the workspace."""

from __future__ import annotations

import base64
import os

from pydantic import SecretStr

from tableferry import workspace
from tableferry.errors import TableferryError
from tableferry.fleet.settings import MailSettings

PASSWORD_VARIABLE = "TABLEFERRY_FLEET_MAIL_PASSWORD"


def with_password(mail: MailSettings) -> MailSettings:
    """Return the settings with the password in them, if anybody is to log in.

    Raises:
        TableferryError: There is none, or its secret can't be read.
    """
    if not mail.user or mail.password.get_secret_value():
        return mail
    found = os.environ.get(PASSWORD_VARIABLE, "")
    if not found and mail.password_secret:
        found = _secret(mail.password_secret)
    if not found:
        raise TableferryError(
            f"there is no password for mail.user {mail.user}: set {PASSWORD_VARIABLE}, or "
            "mail.password_secret to a secret's scope/key"
        )
    return mail.model_copy(update={"password": SecretStr(found)})


def _secret(name: str) -> str:
    scope, slash, key = name.partition("/")
    if not (scope and slash and key):
        raise TableferryError(f"mail.password_secret is '{name}': write it as scope/key")
    client = workspace.client()
    try:
        value = client.secrets.get_secret(scope, key).value
    except Exception as error:
        trouble = workspace.trouble(error, client)
        if trouble is None:
            raise
        raise trouble.as_error(f"the secret {name} with the mail server's password can't be read") from error
    return base64.b64decode(value or "").decode("utf-8")
