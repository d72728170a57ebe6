"""Read the mail server's password: from the settings, the environment, or a secret of the workspace."""

from __future__ import annotations

import os

from pydantic import SecretStr

from tableferry.errors import InputError
from tableferry.fleet import secrets
from tableferry.fleet.settings import MailSettings

PASSWORD_VARIABLE = "TABLEFERRY_FLEET_MAIL_PASSWORD"


def with_password(mail: MailSettings) -> MailSettings:
    """Return the settings with the password, if they have a user.

    Raises:
        InputError: The password is missing.
        SessionError: Its secret can't be read.
    """
    if not mail.user or mail.password.get_secret_value():
        return mail
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if not password and mail.password_secret:
        password = secrets.read(
            mail.password_secret, setting="mail.password_secret", purpose="the mail server's password"
        )
    if not password:
        raise InputError("MAIL_PASSWORD_MISSING", user=mail.user, variable=PASSWORD_VARIABLE)
    return mail.model_copy(update={"password": SecretStr(password)})
