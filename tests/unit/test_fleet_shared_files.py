"""The warning in the comment of a Hive copy that shares its files."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fleet_steps import step_run

from tableferry.errors import TableError
from tableferry.fleet.copies import shared_files_comment
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.jobs.steps import WarnOfSharedFiles
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

ORDERS = TableName(("spark_catalog", "sales", "orders"))
HIVE = TableName(("spark_catalog", "sales", "orders_hive"))


def test_migration_continues_if_the_comment_cannot_be_changed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> str:
        raise TableError("only the owner may alter it")

    monkeypatch.setattr(shared_files_comment, "kinds", lambda *_: {HIVE: Kind.HIVE})
    monkeypatch.setattr(shared_files_comment, "describe", refused)
    nothing: Any = None
    run = step_run(Warehouse(nothing, nothing))
    assert shared_files_comment.warn_of_shared_files(WarnOfSharedFiles(HIVE, ORDERS), run) == run.job
    assert f"{HIVE} has no warning in its comment: only the owner may alter it" in caplog.text
