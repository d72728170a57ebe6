"""A real mail server on loopback, and certificates for it."""

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
    """A self-signed certificate for 127.0.0.1, and its key, as PEM files."""

    file: Path
    key: Path

    @classmethod
    def made(cls, folder: Path) -> Certificate:
        made = cls(folder / "server.pem", folder / "server.key")
        asked = (
            f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {made.key} -out {made.file}"
        )
        subprocess.run(asked.split(), check=True, capture_output=True)
        return made

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


class MailServer:
    """Takes mail, and refuses what it is set to refuse.

    Attributes:
        delivered: The Message-ID and the recipient of each letter, once for each time.
        letters: Each letter that was taken, as often as it was.
        sessions: How often somebody connected.
        logins: How often somebody logged in.
        sender: What is said to a sender; an empty text takes it.
        rcpt: What is said to a recipient; an empty text takes it.
        data: What is said to a letter after its text; an empty text takes it.
        vanish: Whether the connection breaks after a letter was taken, before that is said.
    """

    def __init__(
        self, certificate: Certificate | None = None, *, tls: str = "none", auth: bool = False
    ) -> None:
        self.delivered: list[tuple[str, str]] = []
        self.letters: list[EmailMessage] = []
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
            # aiosmtpd doesn't see that a connection which began with TLS has it.
            inside = tls == "starttls"
            settings |= {"authenticator": self._knows, "auth_required": inside, "auth_require_tls": inside}
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **settings)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.stop()

    def _knows(
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
        letter = message_from_bytes(envelope.content, policy=policy.SMTP)
        self.letters.append(letter)
        self.delivered += [(letter["Message-ID"], to) for to in envelope.rcpt_tos]
        if self.vanish():
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return "250 OK"
