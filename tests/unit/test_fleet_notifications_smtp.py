from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

import pytest
from pydantic import SecretStr
from tests import conditions
from tests.mail_server import PASSWORD, USER, Certificate, MailServer
from tests.workspace import FakeWorkspace

from tableferry.fleet.notifications.emails import build_email
from tableferry.fleet.notifications.password import PASSWORD_VARIABLE, with_password
from tableferry.fleet.notifications.smtp import SendResult, SmtpOutbox
from tableferry.fleet.notifications.texts import Words
from tableferry.fleet.settings import MailSettings

ANN, BOB, EVE = "ann@corp.example", "bob@corp.example", "eve@corp.example"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.create(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with MailServer() as opened:
        yield opened


def settings(mail_server: MailServer, **more: Any) -> MailSettings:
    return MailSettings(host="127.0.0.1", port=mail_server.port, sender="fleet@corp.example", **more)


def email_to(*to: str, number: int = 1, mail: MailSettings = MailSettings()) -> EmailMessage:
    words = Words("Grüße", "Größe und 大きさ\n" + "x" * 2000 + "\n", "<p>Größe</p>\n")
    return build_email(words, f"<1-{number}@corp.example>", to, mail, datetime(2026, 1, 1, tzinfo=UTC))


def test_email_arrives_as_written(mail_server: MailServer) -> None:
    with closing(SmtpOutbox(settings(mail_server))) as post:
        assert post.send(email_to(ANN), [ANN]) == SendResult()
    (received,) = mail_server.emails
    assert received["Subject"] == "Grüße"
    assert received["To"] == ANN
    text, html = received.iter_parts()
    assert isinstance(text, EmailMessage)
    assert isinstance(html, EmailMessage)
    assert text.get_content().splitlines() == ["Größe und 大きさ", "x" * 2000]
    assert html.get_content_type() == "text/html"
    assert html.get_content().strip() == "<p>Größe</p>"
    assert received["Auto-Submitted"] == "auto-generated"
    assert received["Reply-To"] == "tableferry@localhost"


def test_recipients_of_a_batch_see_no_other_recipient(mail_server: MailServer) -> None:
    with closing(SmtpOutbox(settings(mail_server))) as post:
        post.send(email_to(ANN, BOB), [ANN, BOB])
    assert [to for _, to in mail_server.delivered] == [ANN, BOB]
    assert ANN not in str(mail_server.emails[0])


def test_lines_of_an_email_are_within_the_servers_limit() -> None:
    headers, body = email_to(ANN).as_bytes().split(b"\r\n\r\n", 1)
    assert max(map(len, headers.split(b"\r\n"))) < 100
    assert max(map(len, body.split(b"\r\n"))) <= 78


def test_long_message_id_stays_on_its_line() -> None:
    digest = f"<1-{'a' * 64}@mail.department.corp.example>"
    email = build_email(Words("s", "t", "h"), digest, [ANN], MailSettings(), datetime(2026, 1, 1, tzinfo=UTC))
    assert f"Message-ID: {digest}\r\n".encode() in email.as_bytes()


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_email_is_sent_encrypted_only_to_a_trusted_server(certificate: Certificate, tls: Any) -> None:
    with MailServer(certificate, tls=tls, auth=True) as mail_server:
        login = {"user": USER, "password": SecretStr(PASSWORD), "tls": tls}
        with closing(SmtpOutbox(settings(mail_server, ca_file=certificate.file, **login))) as post:
            assert post.send(email_to(ANN), [ANN]) == SendResult()
        assert (len(mail_server.emails), mail_server.logins) == (1, 1)
        with (
            closing(SmtpOutbox(settings(mail_server, **login))) as post,
            conditions.raises("MAIL_TLS_FAILED", reason=re.compile("self-signed certificate")),
        ):
            post.send(email_to(ANN), [ANN])
        wrong = {**login, "password": SecretStr("wrong")}
        with (
            closing(SmtpOutbox(settings(mail_server, ca_file=certificate.file, **wrong))) as post,
            conditions.raises("MAIL_LOGIN_REFUSED", user="tableferry", reply=re.compile("^535")),
        ):
            post.send(email_to(ANN), [ANN])
        assert len(mail_server.emails) == 1


def test_server_without_encryption_gets_no_email(mail_server: MailServer) -> None:
    with (
        closing(SmtpOutbox(settings(mail_server, tls="starttls"))) as post,
        conditions.raises("MAIL_FEATURE_MISSING", reason=re.compile("STARTTLS")),
    ):
        post.send(email_to(ANN), [ANN])
    with (
        closing(SmtpOutbox(settings(mail_server, tls="tls", timeout_seconds=5))) as post,
        conditions.raises("MAIL_TLS_FAILED", server=f"127.0.0.1:{mail_server.port}"),
    ):
        post.send(email_to(ANN), [ANN])


def test_password_is_never_sent_unencrypted() -> None:
    mail = MailSettings(host="mail.example", user=USER, password=SecretStr(PASSWORD))
    with conditions.raises("MAIL_PASSWORD_UNENCRYPTED"):
        SmtpOutbox(mail).send(email_to(ANN), [ANN])


def test_password_that_is_not_ascii_is_refused(mail_server: MailServer) -> None:
    with conditions.raises("MAIL_LOGIN_NOT_ASCII"):
        SmtpOutbox(settings(mail_server, user=USER, password=SecretStr("pässword"))).send(
            email_to(ANN), [ANN]
        )


def test_error_names_an_unreachable_server(mail_server: MailServer) -> None:
    with MailServer() as closed:
        pass
    with conditions.raises("MAIL_SERVER_UNREACHABLE", server=f"127.0.0.1:{closed.port}"):
        SmtpOutbox(settings(closed)).send(email_to(ANN), [ANN])


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("550 5.1.1 no such user", "refused"),
        ("550 no such user", "refused"),
        ("553 mailbox name not allowed", "refused"),
        ("450 mailbox busy", "waiting"),
        ("452 4.2.2 mailbox full", "waiting"),
        ("550 5.7.1 you may not send here", "denied"),
        ("550 relay not permitted", "denied"),
        ("530 authentication required", "waiting"),
    ],
)
def test_refusal_of_a_recipient_is_permanent_temporary_or_about_the_sender(
    mail_server: MailServer, reply: str, kind: str
) -> None:
    mail_server.rcpt = lambda address: reply if address == BOB else ""
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(email_to(ANN, BOB), [ANN, BOB])
        alone = post.send(email_to(BOB, number=2), [BOB])
    assert delivery == alone == SendResult(**{kind: {BOB: reply}})
    assert mail_server.delivered == [("<1-1@corp.example>", ANN)]


@pytest.mark.parametrize("refused", [ANN, BOB, EVE])
@pytest.mark.parametrize("reply", ["421 4.7.0 too many recipients", "450 busy", "550 5.1.1 unknown"])
def test_recipients_without_the_email_wait_wherever_the_server_ends_the_connection(
    mail_server: MailServer, reply: str, refused: str
) -> None:
    to = [ANN, BOB, EVE]
    mail_server.rcpt = lambda address: reply if address == refused else ""
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(email_to(*to), to)
        mail_server.rcpt = lambda address: ""
        assert post.send(email_to(ANN, number=2), [ANN]) == SendResult()
    got = {address for message_id, address in mail_server.delivered if message_id == "<1-1@corp.example>"}
    assert got == set(to) - delivery.refused.keys() - delivery.waiting.keys()
    assert delivery.refused == ({refused: reply} if reply.startswith("550") else {})
    assert got == (set() if reply.startswith("421") else set(to) - {refused})


def test_recipient_refused_before_the_server_ends_the_connection_stays_refused(
    mail_server: MailServer,
) -> None:
    replys = {ANN: "550 5.1.1 unknown", BOB: "421 4.7.0 too many recipients"}
    mail_server.rcpt = lambda address: replys.get(address, "")
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(email_to(ANN, BOB, EVE), [ANN, BOB, EVE])
    assert delivery == SendResult({ANN: replys[ANN]}, waiting=dict.fromkeys((BOB, EVE), replys[BOB]))


@pytest.mark.parametrize(
    ("reply", "permanent"),
    [("550 5.1.1 unknown", True), ("554 looks like spam", False), ("451 later", False), ("421 bye", False)],
)
def test_email_refused_as_a_whole_waits_unless_its_address_is_wrong(
    mail_server: MailServer, reply: str, permanent: bool
) -> None:
    mail_server.data = lambda: reply
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(email_to(ANN), [ANN])
        mail_server.data = lambda: ""
        assert post.send(email_to(BOB, number=2), [BOB]) == SendResult()
    assert delivery == (SendResult({ANN: reply}) if permanent else SendResult(waiting={ANN: reply}))
    assert mail_server.delivered == [("<1-2@corp.example>", BOB)]


def test_lost_connection_leaves_the_email_waiting_and_the_next_one_is_sent(
    mail_server: MailServer,
) -> None:
    breaks = iter([True, False])
    mail_server.vanish = lambda: next(breaks)
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(email_to(ANN), [ANN])
        assert post.send(email_to(BOB, number=2), [BOB]) == SendResult()
    assert delivery.waiting.keys() == {ANN}
    assert mail_server.sessions == 2


def test_emails_share_a_connection(mail_server: MailServer) -> None:
    with closing(SmtpOutbox(settings(mail_server))) as post:
        for number in range(3):
            post.send(email_to(ANN, number=number), [ANN])
    assert (mail_server.sessions, len(mail_server.emails)) == (1, 3)


@pytest.mark.parametrize(
    "words",
    [
        "552 5.3.4 Message size exceeds fixed limit",
        "552 too much",
        "550 5.2.3 longer than the limit",
    ],
)
def test_too_large_email_waits_and_the_next_one_is_sent(mail_server: MailServer, words: str) -> None:
    """A server is told the size with the sender's address."""
    mail_server.sender = lambda: words
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(email_to(ANN), [ANN])
        mail_server.sender = lambda: ""
        assert post.send(email_to(BOB, number=2), [BOB]) == SendResult()
    assert delivery.refused == {}
    assert "too large" in delivery.waiting[ANN]
    assert words in delivery.waiting[ANN]


def test_refused_sender_stops_all_emails(mail_server: MailServer) -> None:
    mail_server.sender = lambda: "550 not you"
    with (
        closing(SmtpOutbox(settings(mail_server))) as post,
        conditions.raises("MAIL_SENDER_REFUSED", sender="fleet@corp.example", reply="550 not you"),
    ):
        post.send(email_to(ANN), [ANN])
    mail_server.sender = lambda: "451 later"
    with closing(SmtpOutbox(settings(mail_server))) as post:
        assert post.send(email_to(ANN), [ANN]) == SendResult(waiting={ANN: "451 later"})


def test_password_is_read_from_settings_environment_or_secret(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    logged_in.secrets["mail", "smtp"] = "från a secret"
    mail = MailSettings(user=USER, password_secret="mail/smtp")
    assert with_password(mail).password.get_secret_value() == "från a secret"
    monkeypatch.setenv(PASSWORD_VARIABLE, "from the environment")
    assert with_password(mail).password.get_secret_value() == "from the environment"
    given = mail.model_copy(update={"password": SecretStr("given")})
    assert with_password(given).password.get_secret_value() == "given"
    assert with_password(MailSettings()).password.get_secret_value() == ""


def test_missing_password_is_reported(logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    with conditions.raises("MAIL_PASSWORD_MISSING", variable=PASSWORD_VARIABLE):
        with_password(MailSettings(user=USER))
    with conditions.raises("SECRET_NOT_READABLE", secret="mail/none", purpose="the mail server's password"):
        with_password(MailSettings(user=USER, password_secret="mail/none"))
    with conditions.raises("SECRET_NAME_INVALID", setting="mail.password_secret", text="mail"):
        with_password(MailSettings(user=USER, password_secret="mail"))
