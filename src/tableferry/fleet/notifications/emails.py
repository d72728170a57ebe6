"""A notification as a mail: text and page, and headers that keep it from being answered by machines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr

from tableferry.errors import InputError
from tableferry.fleet.notifications.addresses import address
from tableferry.fleet.notifications.texts import Words
from tableferry.fleet.settings import MailSettings

# A Message-ID is longer than the 78 characters after which a header is folded, and not all unfold it.
POLICY = SMTP.clone(max_line_length=998)


def message(
    words: Words, message_id: str, recipients: Sequence[str], mail: MailSettings, now: datetime
) -> EmailMessage:
    """Make a mail; several recipients are in Bcc, which no server passes on, so that none sees another."""
    made = EmailMessage(SMTP)
    made["Message-ID"] = message_id
    made["Date"] = format_datetime(now)
    made["From"] = sender(mail)
    made["Reply-To"] = _person(mail.reply_to or mail.sender, "mail.reply_to")
    if len(recipients) == 1:
        made["To"] = _addresses(recipients)
    else:
        made["To"] = "undisclosed-recipients:;"
        made["Bcc"] = _addresses(recipients)
    made["Subject"] = words.subject
    made["Auto-Submitted"] = "auto-generated"
    # The same, for servers that don't know it.
    made["X-Auto-Response-Suppress"] = "All"
    # Lines of any length and any language come through every server.
    made.set_content(words.text, cte="quoted-printable")
    made.add_alternative(words.html, subtype="html", cte="quoted-printable")
    made.policy = POLICY
    return made


def check(mail: MailSettings) -> None:
    """Demand that notifications have somebody to be from, and to be answered to.

    Raises:
        InputError: ``mail.sender`` or ``mail.reply_to`` isn't an address.
    """
    message(Words("", "", ""), "<0@localhost>", ["nobody@localhost"], mail, datetime.now(UTC))


def sender(mail: MailSettings) -> Address:
    """Return the address that notifications are from.

    Raises:
        InputError: ``mail.sender`` isn't an address.
    """
    return _person(mail.sender, "mail.sender")


def _person(text: str, setting: str) -> Address:
    name, spec = parseaddr(text)
    try:
        return Address(name, addr_spec=address(spec, ""))
    except (ValueError, IndexError) as error:
        raise InputError("MAIL_ADDRESS_INVALID", setting=setting, text=text) from error


def _addresses(recipients: Sequence[str]) -> list[Address]:
    parts = (recipient.rpartition("@") for recipient in recipients)
    return [Address(username=user, domain=domain) for user, _, domain in parts]
