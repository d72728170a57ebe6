"""Build the e-mail of a notification, with headers that keep machines from answering it."""

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

# Headers are folded after 78 characters by default, and some servers don't unfold a longer Message-ID.
POLICY = SMTP.clone(max_line_length=998)


def build_email(
    words: Words, message_id: str, recipients: Sequence[str], mail: MailSettings, now: datetime
) -> EmailMessage:
    """Return the e-mail; several recipients are in Bcc, which isn't sent, so that none sees another."""
    email = EmailMessage(SMTP)
    email["Message-ID"] = message_id
    email["Date"] = format_datetime(now)
    email["From"] = sender(mail)
    email["Reply-To"] = _address_of(mail.reply_to or mail.sender, "mail.reply_to")
    addresses = [Address(addr_spec=recipient) for recipient in recipients]
    if len(addresses) == 1:
        email["To"] = addresses
    else:
        email["To"] = "undisclosed-recipients:;"
        email["Bcc"] = addresses
    email["Subject"] = words.subject
    email["Auto-Submitted"] = "auto-generated"
    # Exchange knows only this header.
    email["X-Auto-Response-Suppress"] = "All"
    # Quoted-printable passes lines of any length and any language through every server.
    email.set_content(words.text, cte="quoted-printable")
    email.add_alternative(words.html, subtype="html", cte="quoted-printable")
    email.policy = POLICY
    return email


def check_addresses(mail: MailSettings) -> None:
    """Check the addresses in the settings.

    Raises:
        InputError: ``mail.sender`` or ``mail.reply_to`` isn't an address.
    """
    build_email(Words("", "", ""), "<0@localhost>", ["a@localhost"], mail, datetime.now(UTC))


def sender(mail: MailSettings) -> Address:
    """Return the sender's address.

    Raises:
        InputError: ``mail.sender`` isn't an address.
    """
    return _address_of(mail.sender, "mail.sender")


def _address_of(text: str, setting: str) -> Address:
    name, spec = parseaddr(text)
    try:
        return Address(name, addr_spec=address(spec, ""))
    except (ValueError, IndexError) as error:
        raise InputError("MAIL_ADDRESS_INVALID", setting=setting, text=text) from error
