"""Messages and checks of a REST catalog that isn't reached."""

from __future__ import annotations

import socket

import pytest

from tableferry.fleet.copies.iceberg_files.rest_commit import _Catalog, _is_answering


def test_message_of_an_invalid_header_hides_its_secret() -> None:
    settings = {"uri": "https://c.example", "token": "geheim\n", "header.X-Key": "auch", "prefix": ""}
    message = _Catalog("lake", settings).message_of(
        ValueError("b'Bearer geheim' and 'auch', by https://c.example")
    )
    assert message == "b'Bearer …' and '…', by https://c.example"


def test_message_hides_both_halves_of_a_login() -> None:
    settings = {"uri": "https://me:geheim@c.example/v1", "credential": "id:auch"}
    message = _Catalog("lake", settings).message_of(
        ValueError("https://me:geheim@c.example refused id:auch and auch")
    )
    assert message == "https://…@c.example refused … and …"


def test_catalog_without_answer_is_reported_immediately(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert _is_answering(f"{address}/catalog")
    assert caplog.text == ""
    # Each address is asked once in a process.
    assert not _is_answering(f"{address}/gone")
    assert "this process doesn't reach 127.0.0.1, so Spark adds files there" in caplog.text
    assert not _is_answering("")
    # An invalid address isn't reached either.
    assert not _is_answering("http://127.0.0.1:eighty")
