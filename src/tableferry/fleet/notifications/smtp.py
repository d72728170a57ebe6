"""Hands notifications to an SMTP server, and distinguishes lasting refusals from passing ones."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from typing import Protocol, assert_never

from tableferry.errors import ServiceError
from tableferry.fleet.notifications.emails import sender
from tableferry.fleet.settings import MailSettings

# What a server says to a recipient, and to a notification as a whole, when it will say so again tomorrow.
_NOT_OF_US = re.compile(r"5(?!30)\d\d (?!5\.7\.)(?!.*\brelay)", re.IGNORECASE)
_PERHAPS_OF_US = re.compile(r"5(?!30)\d\d ")
_TOO_LARGE = re.compile(r"552 |5\d\d 5\.(3\.4|2\.3)\b")
_OF_THE_ADDRESS = re.compile(r"5\d\d 5\.[12]\.")

_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


class NoServer(ServiceError):
    """No notification can be sent now: the server isn't there, or doesn't take notifications from us."""


@dataclass(frozen=True)
class Delivery:
    """What became of a notification.

    Attributes:
        refused: Recipients whom the server refused for good, and its words.
        waiting: Recipients to whom the notification has to be sent once more, and why.
        denied: Recipients with a permanent refusal that may concern the sender: 5.7.x, or relaying. If the
            server takes messages for others, it concerns the recipient.
    """

    refused: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, str] = field(default_factory=dict)


class Outbox(Protocol):
    """Takes notifications."""

    def send(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        """Send a notification to these recipients.

        Raises:
            NoServer: Neither this one nor any other can be sent now.
        """

    def close(self) -> None:
        """End the connection, if there is one."""


class SmtpOutbox:
    """Sends notifications through one connection, made when the first is sent, and again when it's lost."""

    def __init__(self, mail: MailSettings) -> None:
        self._mail = mail
        self._server: smtplib.SMTP | None = None

    def send(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        """Send a notification to these recipients.

        A refusal stays if the server says 5xx to a recipient, unless its words may be about us (5.7.x,
        relaying): a wrong relay mustn't count as having told everybody. Everything else passes.

        Raises:
            NoServer: Neither this one nor any other can be sent now.
        """
        server = self._connected()
        international = not all(recipient.isascii() for recipient in recipients)
        if international and not server.has_extn("smtputf8"):
            return self._without_utf8(message, recipients)
        try:
            refused = server.send_message(message, sender(self._mail).addr_spec, list(recipients))
        except smtplib.SMTPRecipientsRefused as error:
            # Nobody got it: where some weren't named to the server, it had ended with its last answer.
            last = list(error.recipients.values())[-1]
            refused = {**dict.fromkeys(recipients, last), **error.recipients}
        except smtplib.SMTPSenderRefused as error:
            reply = _reply(error.smtp_code, error.smtp_error)
            if _TOO_LARGE.match(reply):
                # A server is told the size with the sender, and others may be smaller.
                why = f"the letter is too large for {self._where} ({reply}): let it take larger ones"
                return Delivery(waiting=dict.fromkeys(recipients, why))
            if error.smtp_code < 500:
                return Delivery(waiting=dict.fromkeys(recipients, reply))
            raise NoServer(
                "MAIL_SENDER_REFUSED",
                server=self._server_name,
                sender=sender(self._mail).addr_spec,
                reply=reply,
            ) from error
        except smtplib.SMTPDataError as error:
            answers = dict.fromkeys(recipients, (error.smtp_code, error.smtp_error))
            return _sorted(answers, _OF_THE_ADDRESS)
        except (smtplib.SMTPException, OSError) as error:
            self.close()
            # Perhaps the server took it, and perhaps not.
            return Delivery(
                waiting=dict.fromkeys(recipients, f"the connection to {self._where} broke: {error}")
            )
        delivery = _sorted(refused, _NOT_OF_US)
        denied = {to: why for to, why in delivery.waiting.items() if _PERHAPS_OF_US.match(why)}
        waiting = {to: why for to, why in delivery.waiting.items() if to not in denied}
        return Delivery(delivery.refused, waiting, denied)

    def close(self) -> None:
        """End the connection, if there is one."""
        server, self._server = self._server, None
        if server is not None:
            try:
                server.quit()
            except (smtplib.SMTPException, OSError):
                server.close()

    @property
    def _server_name(self) -> str:
        return f"{self._mail.host}:{self._mail.port}"

    @property
    def _where(self) -> str:
        return f"the mail server {self._server_name}"

    def _without_utf8(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        """Send to those whom a server can name that knows ASCII alone."""
        nameable = [recipient for recipient in recipients if recipient.isascii()]
        why = f"{self._where} can't send to an address that isn't ASCII"
        delivery = self.send(message, nameable) if nameable else Delivery()
        others = {recipient: why for recipient in recipients if recipient not in nameable}
        return replace(delivery, refused={**delivery.refused, **others})

    def _connected(self) -> smtplib.SMTP:
        """Return the connection, made anew if the server has ended it: many do after some notifications."""
        if self._server is not None:
            try:
                if self._server.noop()[0] == 250:
                    return self._server
            except smtplib.SMTPServerDisconnected:
                self._server = None
            self.close()
        self._server = self._connect()
        return self._server

    def _connect(self) -> smtplib.SMTP:
        mail = self._mail
        if mail.user and mail.tls == "none" and not _LOOPBACK.fullmatch(mail.host):
            raise NoServer("MAIL_PASSWORD_UNENCRYPTED", server=self._server_name)
        if not (mail.user + mail.password.get_secret_value()).isascii():
            raise NoServer("MAIL_LOGIN_NOT_ASCII")
        with self._explained():
            match mail.tls:
                case "tls":
                    server: smtplib.SMTP = smtplib.SMTP_SSL(
                        mail.host, mail.port, timeout=mail.timeout_seconds, context=self._trust()
                    )
                case "starttls" | "none":
                    server = smtplib.SMTP(mail.host, mail.port, timeout=mail.timeout_seconds)
                case _:
                    assert_never(mail.tls)
            try:
                if mail.tls == "starttls":
                    server.starttls(context=self._trust())
                if mail.user:
                    server.login(mail.user, mail.password.get_secret_value())
                server.ehlo_or_helo_if_needed()
            except BaseException:
                server.close()
                raise
        return server

    def _trust(self) -> ssl.SSLContext:
        file = self._mail.ca_file
        try:
            return ssl.create_default_context(cafile=file)
        except (OSError, ssl.SSLError) as error:
            raise NoServer("MAIL_CA_FILE_NOT_READABLE", file=file, reason=error) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise an error with the reason why there is no connection."""
        try:
            yield
        except smtplib.SMTPAuthenticationError as error:
            reply = _reply(error.smtp_code, error.smtp_error)
            raise NoServer(
                "MAIL_LOGIN_REFUSED", server=self._server_name, user=self._mail.user, reply=reply
            ) from error
        except smtplib.SMTPNotSupportedError as error:
            raise NoServer("MAIL_FEATURE_MISSING", server=self._server_name, reason=error) from error
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            raise NoServer("MAIL_TLS_FAILED", server=self._server_name, reason=reason) from error
        except (smtplib.SMTPException, OSError) as error:
            raise NoServer("MAIL_SERVER_UNREACHABLE", server=self._server_name, reason=error) from error


def _sorted(answers: Mapping[str, tuple[int, bytes | str]], for_good: re.Pattern[str]) -> Delivery:
    """Say who is refused for good, by the server's words."""
    replies = {recipient: _reply(*answer) for recipient, answer in answers.items()}
    refused = {recipient: reply for recipient, reply in replies.items() if for_good.match(reply + " ")}
    waiting = {recipient: reply for recipient, reply in replies.items() if recipient not in refused}
    return Delivery(refused, waiting)


def _reply(code: int, words: bytes | str) -> str:
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return f"{code} {' '.join(text.split())}"
