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

from tableferry.fleet.notifications.emails import message
from tableferry.fleet.notifications.password import PASSWORD_VARIABLE, with_password
from tableferry.fleet.notifications.smtp import Delivery, SmtpOutbox
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


def letter(*to: str, number: int = 1, mail: MailSettings = MailSettings()) -> EmailMessage:
    words = Words("Grüße", "Größe und 大きさ\n" + "x" * 2000 + "\n", "<p>Größe</p>\n")
    return message(words, f"<1-{number}@corp.example>", to, mail, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_notification_arrives_as_it_was_written(mail_server: MailServer) -> None:
    with closing(SmtpOutbox(settings(mail_server))) as post:
        assert post.send(letter(ANN), [ANN]) == Delivery()
    (came,) = mail_server.emails
    assert came["Subject"] == "Grüße"
    assert came["To"] == ANN
    text, html = came.iter_parts()
    assert isinstance(text, EmailMessage)
    assert isinstance(html, EmailMessage)
    assert text.get_content().splitlines() == ["Größe und 大きさ", "x" * 2000]
    assert html.get_content_type() == "text/html"
    assert html.get_content().strip() == "<p>Größe</p>"
    assert came["Auto-Submitted"] == "auto-generated"
    assert came["Reply-To"] == "tableferry@localhost"


def test_no_recipient_of_many_sees_another(mail_server: MailServer) -> None:
    with closing(SmtpOutbox(settings(mail_server))) as post:
        post.send(letter(ANN, BOB), [ANN, BOB])
    assert [to for _, to in mail_server.delivered] == [ANN, BOB]
    assert ANN not in str(mail_server.emails[0])


def test_no_line_on_the_wire_is_longer_than_a_server_takes() -> None:
    headers, body = letter(ANN).as_bytes().split(b"\r\n\r\n", 1)
    assert max(map(len, headers.split(b"\r\n"))) < 100
    assert max(map(len, body.split(b"\r\n"))) <= 78


def test_a_long_message_id_stays_on_its_line() -> None:
    digest = f"<1-{'a' * 64}@mail.department.corp.example>"
    made = message(Words("s", "t", "h"), digest, [ANN], MailSettings(), datetime(2026, 1, 1, tzinfo=UTC))
    assert f"Message-ID: {digest}\r\n".encode() in made.as_bytes()


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_notifications_go_encrypted_to_a_server_that_is_trusted(certificate: Certificate, tls: Any) -> None:
    with MailServer(certificate, tls=tls, auth=True) as mail_server:
        login = {"user": USER, "password": SecretStr(PASSWORD), "tls": tls}
        with closing(SmtpOutbox(settings(mail_server, ca_file=certificate.file, **login))) as post:
            assert post.send(letter(ANN), [ANN]) == Delivery()
        assert (len(mail_server.emails), mail_server.logins) == (1, 1)
        with (
            closing(SmtpOutbox(settings(mail_server, **login))) as post,
            conditions.raises("MAIL_TLS_FAILED", reason=re.compile("self-signed certificate")),
        ):
            post.send(letter(ANN), [ANN])
        wrong = {**login, "password": SecretStr("wrong")}
        with (
            closing(SmtpOutbox(settings(mail_server, ca_file=certificate.file, **wrong))) as post,
            conditions.raises("MAIL_LOGIN_REFUSED", user="tableferry", reply=re.compile("^535")),
        ):
            post.send(letter(ANN), [ANN])
        assert len(mail_server.emails) == 1


def test_a_server_without_encryption_gets_no_notification(mail_server: MailServer) -> None:
    with (
        closing(SmtpOutbox(settings(mail_server, tls="starttls"))) as post,
        conditions.raises("MAIL_FEATURE_MISSING", reason=re.compile("STARTTLS")),
    ):
        post.send(letter(ANN), [ANN])
    with (
        closing(SmtpOutbox(settings(mail_server, tls="tls", timeout_seconds=5))) as post,
        conditions.raises("MAIL_TLS_FAILED", server=f"127.0.0.1:{mail_server.port}"),
    ):
        post.send(letter(ANN), [ANN])


def test_a_password_never_crosses_a_network_in_the_clear() -> None:
    mail = MailSettings(host="mail.example", user=USER, password=SecretStr(PASSWORD))
    with conditions.raises("MAIL_PASSWORD_UNENCRYPTED"):
        SmtpOutbox(mail).send(letter(ANN), [ANN])


def test_a_password_that_no_server_takes_is_said_to_be_one(mail_server: MailServer) -> None:
    with conditions.raises("MAIL_LOGIN_NOT_ASCII"):
        SmtpOutbox(settings(mail_server, user=USER, password=SecretStr("pässword"))).send(letter(ANN), [ANN])


def test_a_server_that_is_not_there_is_named(mail_server: MailServer) -> None:
    with MailServer() as closed:
        pass
    with conditions.raises("MAIL_SERVER_UNREACHABLE", server=f"127.0.0.1:{closed.port}"):
        SmtpOutbox(settings(closed)).send(letter(ANN), [ANN])


@pytest.mark.parametrize(
    ("answer", "kind"),
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
def test_a_refusal_stays_unless_it_passes_or_may_mean_us(
    mail_server: MailServer, answer: str, kind: str
) -> None:
    mail_server.rcpt = lambda address: answer if address == BOB else ""
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(letter(ANN, BOB), [ANN, BOB])
        alone = post.send(letter(BOB, number=2), [BOB])
    assert delivery == alone == Delivery(**{kind: {BOB: answer}})
    assert mail_server.delivered == [("<1-1@corp.example>", ANN)]


@pytest.mark.parametrize("refused", [ANN, BOB, EVE])
@pytest.mark.parametrize("answer", ["421 4.7.0 too many recipients", "450 busy", "550 5.1.1 unknown"])
def test_whoever_did_not_get_a_notification_waits_wherever_the_server_breaks_off(
    mail_server: MailServer, answer: str, refused: str
) -> None:
    to = [ANN, BOB, EVE]
    mail_server.rcpt = lambda address: answer if address == refused else ""
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(letter(*to), to)
        mail_server.rcpt = lambda address: ""
        assert post.send(letter(ANN, number=2), [ANN]) == Delivery()
    got = {address for message_id, address in mail_server.delivered if message_id == "<1-1@corp.example>"}
    assert got == set(to) - delivery.refused.keys() - delivery.waiting.keys()
    assert delivery.refused == ({refused: answer} if answer.startswith("550") else {})
    assert got == (set() if answer.startswith("421") else set(to) - {refused})


def test_a_recipient_refused_before_the_server_breaks_off_stays_refused(mail_server: MailServer) -> None:
    answers = {ANN: "550 5.1.1 unknown", BOB: "421 4.7.0 too many recipients"}
    mail_server.rcpt = lambda address: answers.get(address, "")
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(letter(ANN, BOB, EVE), [ANN, BOB, EVE])
    assert delivery == Delivery({ANN: answers[ANN]}, dict.fromkeys((BOB, EVE), answers[BOB]))


@pytest.mark.parametrize(
    ("answer", "for_good"),
    [("550 5.1.1 unknown", True), ("554 looks like spam", False), ("451 later", False), ("421 bye", False)],
)
def test_a_notification_refused_as_a_whole_is_sent_again_unless_for_its_address(
    mail_server: MailServer, answer: str, for_good: bool
) -> None:
    mail_server.data = lambda: answer
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(letter(ANN), [ANN])
        mail_server.data = lambda: ""
        assert post.send(letter(BOB, number=2), [BOB]) == Delivery()
    assert delivery == (Delivery({ANN: answer}) if for_good else Delivery({}, {ANN: answer}))
    assert mail_server.delivered == [("<1-2@corp.example>", BOB)]


def test_a_connection_that_breaks_after_a_notification_leaves_it_waiting_and_the_next_goes_on(
    mail_server: MailServer,
) -> None:
    breaks = iter([True, False])
    mail_server.vanish = lambda: next(breaks)
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(letter(ANN), [ANN])
        assert post.send(letter(BOB, number=2), [BOB]) == Delivery()
    assert delivery.waiting.keys() == {ANN}
    assert mail_server.sessions == 2


def test_notifications_share_a_connection(mail_server: MailServer) -> None:
    with closing(SmtpOutbox(settings(mail_server))) as post:
        for number in range(3):
            post.send(letter(ANN, number=number), [ANN])
    assert (mail_server.sessions, len(mail_server.emails)) == (1, 3)


@pytest.mark.parametrize(
    "words",
    [
        "552 5.3.4 Message size exceeds fixed limit",
        "552 too much",
        "550 5.2.3 longer than the limit",
    ],
)
def test_a_letter_that_is_too_large_lets_the_next_ones_go(mail_server: MailServer, words: str) -> None:
    """A server is told the size with the sender's address."""
    mail_server.sender = lambda: words
    with closing(SmtpOutbox(settings(mail_server))) as post:
        delivery = post.send(letter(ANN), [ANN])
        mail_server.sender = lambda: ""
        assert post.send(letter(BOB, number=2), [BOB]) == Delivery()
    assert delivery.refused == {}
    assert "too large" in delivery.waiting[ANN]
    assert words in delivery.waiting[ANN]


def test_a_sender_that_is_refused_stops_all(mail_server: MailServer) -> None:
    mail_server.sender = lambda: "550 not you"
    with (
        closing(SmtpOutbox(settings(mail_server))) as post,
        conditions.raises("MAIL_SENDER_REFUSED", sender="fleet@corp.example", reply="550 not you"),
    ):
        post.send(letter(ANN), [ANN])
    mail_server.sender = lambda: "451 later"
    with closing(SmtpOutbox(settings(mail_server))) as post:
        assert post.send(letter(ANN), [ANN]) == Delivery(waiting={ANN: "451 later"})


def test_the_password_is_looked_for_where_it_may_be(
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


def test_a_password_that_is_nowhere_is_asked_for(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    with conditions.raises("MAIL_PASSWORD_MISSING", variable=PASSWORD_VARIABLE):
        with_password(MailSettings(user=USER))
    with conditions.raises("SECRET_NOT_READABLE", secret="mail/none", purpose="the mail server's password"):
        with_password(MailSettings(user=USER, password_secret="mail/none"))
    with conditions.raises("SECRET_NAME_INVALID", setting="mail.password_secret", text="mail"):
        with_password(MailSettings(user=USER, password_secret="mail"))
