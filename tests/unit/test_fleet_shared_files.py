"""The warning in the comment of a Hive copy that shares its files."""

from __future__ import annotations

from typing import Any

import pytest

from tableferry.errors import TableError
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import shared_files
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

ORDERS = TableName(("spark_catalog", "sales", "orders"))
HIVE = TableName(("spark_catalog", "sales", "orders_hive"))


def test_comment_that_may_not_be_changed_holds_up_no_migration(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> str:
        raise TableError("only the owner may alter it")

    monkeypatch.setattr(shared_files, "kinds", lambda *_: {HIVE: Kind.HIVE})
    monkeypatch.setattr(shared_files, "describe", refused)
    nothing: Any = None
    shared_files.warn(Warehouse(nothing, nothing), HIVE, ORDERS)
    assert f"{HIVE} has no warning in its comment: only the owner may alter it" in caplog.text
