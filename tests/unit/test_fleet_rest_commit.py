"""What a client says of a REST catalog that it doesn't reach."""

from __future__ import annotations

import socket

import pytest

from tableferry.fleet.warehouse.rest_commit import _Catalog, _is_answering


def test_a_header_that_is_none_is_not_quoted_with_its_secret() -> None:
    settings = {"uri": "https://c.example", "token": "geheim\n", "header.X-Key": "auch", "prefix": ""}
    said = _Catalog("lake", settings).message_of(
        ValueError("b'Bearer geheim' and 'auch', by https://c.example")
    )
    assert said == "b'Bearer …' and '…', by https://c.example"


def test_neither_half_of_a_login_is_quoted() -> None:
    settings = {"uri": "https://me:geheim@c.example/v1", "credential": "id:auch"}
    said = _Catalog("lake", settings).message_of(
        ValueError("https://me:geheim@c.example refused id:auch and auch")
    )
    assert said == "https://…@c.example refused … and …"


def test_nobody_waits_for_a_catalog_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert _is_answering(f"{address}/catalog")
    assert caplog.text == ""
    # Each address is asked once in a process.
    assert not _is_answering(f"{address}/gone")
    assert "this process doesn't reach 127.0.0.1, so Spark adds files there" in caplog.text
    assert not _is_answering("")
    # What isn't an address is nobody's end.
    assert not _is_answering("http://127.0.0.1:eighty")
