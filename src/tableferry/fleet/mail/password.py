"""Where the mail server's password is: in the settings, the environment, or a secret of the workspace."""

from __future__ import annotations

import os

from pydantic import SecretStr

from tableferry.errors import TableferryError
from tableferry.fleet import secrets
from tableferry.fleet.settings import MailSettings

PASSWORD_VARIABLE = "TABLEFERRY_FLEET_MAIL_PASSWORD"


def with_password(mail: MailSettings) -> MailSettings:
    """Return the settings with the password in them, if anybody is to log in.

    Raises:
        TableferryError: There is none, or its secret can't be read.
    """
    if not mail.user or mail.password.get_secret_value():
        return mail
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if not password and mail.password_secret:
        password = secrets.read(
            mail.password_secret, setting="mail.password_secret", holds="the mail server's password"
        )
    if not password:
        raise TableferryError(
            f"there is no password for mail.user {mail.user}: set {PASSWORD_VARIABLE}, or "
            "mail.password_secret to a secret's scope/key"
        )
    return mail.model_copy(update={"password": SecretStr(password)})
