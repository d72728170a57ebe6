"""Send e-mails through an SMTP server, and tell permanent refusals from temporary ones."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Protocol

from tableferry.errors import ServiceError
from tableferry.fleet.notifications.emails import sender
from tableferry.fleet.settings import MailSettings

# Replies. 530 asks for a login, 5.7.x is about policy: neither tells that an address is wrong.
_PERMANENT = re.compile(r"5(?!30)\d\d ")
_MAY_CONCERN_SENDER = re.compile(r"5\d\d (5\.7\.|.*\brelay)", re.IGNORECASE)
_TOO_LARGE = re.compile(r"552 |5\d\d 5\.(3\.4|2\.3)\b")
_WRONG_ADDRESS = re.compile(r"5\d\d 5\.[12]\.")

_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


class MailServerUnavailable(ServiceError):
    """No e-mail can be sent: the server can't be reached, or refuses the sender."""


@dataclass(frozen=True)
class SendResult:
    """The recipients who didn't get an e-mail, each with the server's reply or another reason.

    Attributes:
        refused: Recipients who are refused permanently.
        denied: Recipients who are refused permanently, unless the refusal concerns the sender.
        waiting: Recipients who need another attempt.
    """

    refused: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)


class Outbox(Protocol):
    """Accepts e-mails."""

    def send(self, email: EmailMessage, recipients: Sequence[str]) -> SendResult:
        """Send an e-mail to these recipients.

        Raises:
            MailServerUnavailable: No e-mail can be sent now.
        """

    def close(self) -> None:
        """End the connection, if one is open."""


class SmtpOutbox:
    """Sends e-mails through one connection, and connects again if the server ends it."""

    def __init__(self, mail: MailSettings) -> None:
        self._mail = mail
        self._server: smtplib.SMTP | None = None

    def send(self, email: EmailMessage, recipients: Sequence[str]) -> SendResult:
        """Send an e-mail to these recipients.

        Raises:
            MailServerUnavailable: No e-mail can be sent now.
        """
        server, from_address = self._connection(), sender(self._mail).addr_spec
        try:
            replies = server.send_message(email, from_address, list(recipients))
        except smtplib.SMTPRecipientsRefused as error:
            # No recipient got it. If the server ended the connection, its last reply is for the others, too.
            last = list(error.recipients.values())[-1]
            replies = {**dict.fromkeys(recipients, last), **error.recipients}
        except smtplib.SMTPSenderRefused as error:
            reply = _reply_text(error.smtp_code, error.smtp_error)
            if _TOO_LARGE.match(reply):
                # The size is sent with the sender's address, and the next e-mail may be smaller.
                reply = f"the notification is too large for {self._name} ({reply}): raise the server's limit"
            elif error.smtp_code >= 500:
                raise MailServerUnavailable(
                    "MAIL_SENDER_REFUSED", server=self._name, sender=from_address, reply=reply
                ) from error
            return SendResult(waiting=dict.fromkeys(recipients, reply))
        except smtplib.SMTPDataError as error:
            reply = _reply_text(error.smtp_code, error.smtp_error)
            all_recipients = dict.fromkeys(recipients, reply)
            if _WRONG_ADDRESS.match(reply):
                return SendResult(refused=all_recipients)
            return SendResult(waiting=all_recipients)
        except (smtplib.SMTPException, OSError) as error:
            # The server may have accepted the e-mail.
            self.close()
            lost = f"the connection to the mail server {self._name} was lost: {error}"
            return SendResult(waiting=dict.fromkeys(recipients, lost))
        return _by_kind({recipient: _reply_text(*reply) for recipient, reply in replies.items()})

    def connect(self) -> None:
        """Connect and log in, and send nothing.

        Raises:
            MailServerUnavailable: The server can't be reached, or refuses the login.
        """
        self._connection()

    def close(self) -> None:
        """End the connection, if one is open."""
        server, self._server = self._server, None
        if server is not None:
            try:
                server.quit()
            except (smtplib.SMTPException, OSError):
                server.close()

    @property
    def _name(self) -> str:
        return f"{self._mail.host}:{self._mail.port}"

    def _connection(self) -> smtplib.SMTP:
        """Return the connection; many servers end it after some e-mails."""
        if self._server is not None:
            try:
                if self._server.noop()[0] == 250:
                    return self._server
            except smtplib.SMTPServerDisconnected:
                pass
            self.close()
        self._server = self._connect()
        return self._server

    def _connect(self) -> smtplib.SMTP:
        mail, password = self._mail, self._mail.password.get_secret_value()
        if mail.user and mail.tls == "none" and not _LOOPBACK.fullmatch(mail.host):
            raise MailServerUnavailable("MAIL_PASSWORD_UNENCRYPTED", server=self._name)
        if not (mail.user + password).isascii():
            raise MailServerUnavailable("MAIL_LOGIN_NOT_ASCII")
        with self._errors_as_conditions():
            server: smtplib.SMTP
            if mail.tls == "tls":
                server = smtplib.SMTP_SSL(
                    mail.host, mail.port, timeout=mail.timeout_seconds, context=self._tls_context()
                )
            else:
                server = smtplib.SMTP(mail.host, mail.port, timeout=mail.timeout_seconds)
            try:
                if mail.tls == "starttls":
                    server.starttls(context=self._tls_context())
                if mail.user:
                    server.login(mail.user, password)
                server.ehlo_or_helo_if_needed()
            except BaseException:
                server.close()
                raise
        return server

    def _tls_context(self) -> ssl.SSLContext:
        file = self._mail.ca_file
        try:
            return ssl.create_default_context(cafile=file)
        except (OSError, ssl.SSLError) as error:
            raise MailServerUnavailable("MAIL_CA_FILE_NOT_READABLE", file=file, reason=error) from error

    @contextmanager
    def _errors_as_conditions(self) -> Iterator[None]:
        """Raise errors of a connection as conditions."""
        try:
            yield
        except smtplib.SMTPAuthenticationError as error:
            reply = _reply_text(error.smtp_code, error.smtp_error)
            raise MailServerUnavailable(
                "MAIL_LOGIN_REFUSED", server=self._name, user=self._mail.user, reply=reply
            ) from error
        except smtplib.SMTPNotSupportedError as error:
            raise MailServerUnavailable("MAIL_FEATURE_MISSING", server=self._name, reason=error) from error
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            raise MailServerUnavailable("MAIL_TLS_FAILED", server=self._name, reason=reason) from error
        except (smtplib.SMTPException, OSError) as error:
            raise MailServerUnavailable("MAIL_SERVER_UNREACHABLE", server=self._name, reason=error) from error


def _by_kind(replies: Mapping[str, str]) -> SendResult:
    """Sort refused recipients by whether the refusal is permanent, and may concern the sender."""
    permanent = {to: reply for to, reply in replies.items() if _PERMANENT.match(reply)}
    denied = {to: reply for to, reply in permanent.items() if _MAY_CONCERN_SENDER.match(reply)}
    refused = {to: reply for to, reply in permanent.items() if to not in denied}
    return SendResult(refused, denied, {to: reply for to, reply in replies.items() if to not in permanent})


def _reply_text(code: int, words: bytes | str) -> str:
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return f"{code} {' '.join(text.split())}"
