"""A mail server on the loopback interface, and its certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "tableferry", "pass word"


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM files."""

    file: Path
    key: Path

    @classmethod
    def create(cls, folder: Path) -> Certificate:
        certificate = cls(folder / "server.pem", folder / "server.key")
        command = (
            f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {certificate.key} -out {certificate.file}"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
        return certificate

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


class MailServer:
    """A server that accepts e-mails, and replies with errors as a test configures.

    Attributes:
        delivered: The Message-ID and the recipient of each delivery.
        emails: Each accepted e-mail, once per delivery.
        sessions: The number of connections.
        logins: The number of successful logins.
        sender: Returns the error reply to MAIL; an empty text accepts the sender.
        rcpt: Returns the error reply to RCPT; an empty text accepts the recipient.
        data: Returns the error reply to DATA; an empty text accepts the e-mail.
        vanish: Returns whether to close the connection before the reply to an accepted e-mail.
    """

    def __init__(
        self, certificate: Certificate | None = None, *, tls: str = "none", auth: bool = False
    ) -> None:
        self.delivered: list[tuple[str, str]] = []
        self.emails: list[EmailMessage] = []
        self.sessions = 0
        self.logins = 0
        self.sender: Callable[[], str] = lambda: ""
        self.rcpt: Callable[[str], str] = lambda address: ""
        self.data: Callable[[], str] = lambda: ""
        self.vanish: Callable[[], bool] = lambda: False
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        settings: dict[str, Any] = {}
        if certificate is not None and tls == "tls":
            settings["ssl_context"] = certificate.context()
        if certificate is not None and tls == "starttls":
            settings |= {"tls_context": certificate.context(), "require_starttls": True}
        if auth:
            # aiosmtpd doesn't recognize a connection that started with TLS as encrypted.
            needs_tls = tls == "starttls"
            settings |= {
                "authenticator": self._authenticate,
                "auth_required": needs_tls,
                "auth_require_tls": needs_tls,
            }
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **settings)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.stop()

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, login: LoginPassword
    ) -> AuthResult:
        known = (login.login, login.password) == (USER.encode(), PASSWORD.encode())
        self.logins += known
        return AuthResult(success=known, handled=False)

    async def handle_EHLO(
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, answers: list[str]
    ) -> list[str]:
        session.host_name = hostname
        self.sessions += 1
        return answers

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address
        return self.sender() or "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if refusal := self.rcpt(address):
            return refusal
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if refusal := self.data():
            return refusal
        assert isinstance(envelope.content, bytes)
        email = message_from_bytes(envelope.content, policy=policy.SMTP)
        self.emails.append(email)
        self.delivered += [(email["Message-ID"], to) for to in envelope.rcpt_tos]
        if self.vanish():
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return "250 OK"
