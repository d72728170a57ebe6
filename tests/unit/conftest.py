"""Projects on disk for the tests of specs, and databases for those of the queue."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import servers

from tableferry.errors import Problem, SpecError
from tableferry.pipelines import specs
from tableferry.pipelines.model import flows

APPEND: dict[str, Any] = {
    "dataFlowId": "orders_append",
    "dataFlowGroup": "sales",
    "dataFlowType": "standard",
    "sourceSystem": "erp",
    "sourceType": "delta",
    "sourceViewName": "v_orders",
    "sourceDetails": {
        "database": "{bronze_schema}",
        "table": "orders",
        "cdfEnabled": True,
        "selectExp": ["ORDER_ID", "AMOUNT", "LOAD_TIMESTAMP"],
    },
    "mode": "stream",
    "targetFormat": "delta",
    "targetDetails": {
        "database": "{silver_schema}",
        "table": "orders",
        "tableProperties": {"delta.enableChangeDataFeed": "true"},
    },
    "tableMigrationDetails": {
        "enabled": True,
        "catalogType": "uc",
        "autoStartingVersionsEnabled": True,
        "sourceDetails": {"database": "{silver_schema}", "table": "orders_legacy"},
    },
}
FLOW: dict[str, Any] = {
    "dataFlowId": "customer",
    "dataFlowGroup": "crm",
    "dataFlowType": "flow",
    "targetFormat": "delta",
    "targetDetails": {"database": "silver", "table": "customer"},
    "cdcSettings": {"keys": ["ID"], "scd_type": 1, "sequence_by": "TS"},
    "flowGroups": [
        {
            "flowGroupId": "main",
            "stagingTables": {"customer_rows": {"type": "ST"}},
            "flows": {
                "f_rows": {
                    "flowType": "append_view",
                    "flowDetails": {"targetTable": "customer_rows", "sourceView": "v_rows"},
                    "views": {
                        "v_rows": {
                            "mode": "stream",
                            "sourceType": "delta",
                            "sourceDetails": {"database": "bronze", "table": "customer", "cdfEnabled": False},
                        }
                    },
                },
                "f_customer": {
                    "flowType": "merge",
                    "flowDetails": {"targetTable": "silver.customer", "sourceView": "customer_rows"},
                },
            },
        }
    ],
}


class ProjectFiles:
    """A project's folder that a test writes into."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("pipeline_configs/global.json", {"table_migration_state_volume_path": "state"})
        self.write(
            "pipeline_configs/dev_substitutions.json",
            {"tokens": {"bronze_schema": "bronze", "silver_schema": "silver"}},
        )

    def write(self, name: str, content: Any) -> Path:
        """Write a file; what isn't text or bytes becomes JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    def append(self, **changes: Any) -> dict[str, Any]:
        """The append-only example, with other values for some of its keys; None takes a key out."""
        return changed(APPEND, changes)

    def flow(self, **changes: Any) -> dict[str, Any]:
        """A flow spec with staging, with other values for some of its keys."""
        return changed(FLOW, changes)

    def load(self, **options: Any) -> flows.Project:
        """Load the folder."""
        return specs.load(self.root, **options)

    def problems(self, **options: Any) -> list[str]:
        """Load the folder and return its problems: the place, the condition and the parameters of each."""
        with pytest.raises(SpecError) as caught:
            specs.load(self.root, **options)
        return [described(problem) for problem in caught.value.problems]


def described(problem: Problem) -> str:
    """Describe a problem by its place, its condition and its parameters, such as ``a.json: k: X name=v``."""
    parameters = ", ".join(f"{name}={value}" for name, value in problem.parameters.items())
    place = f"{problem.file}: {problem.path}" if problem.path else problem.file
    return f"{place}: {problem.condition} {parameters}".strip()


def changed(written: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = {**copy.deepcopy(written), **changes}
    return {key: value for key, value in merged.items() if value is not None}


@pytest.fixture
def project(tmp_path: Path) -> ProjectFiles:
    return ProjectFiles(tmp_path)


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Keep a folder from being listed, as its permissions would; root reads past those."""

    def forbid(folder: Path) -> None:
        for asked in ("listdir", "scandir"):
            real = getattr(os, asked)

            def answer(path: Any = ".", real: Any = real) -> Any:
                if not isinstance(path, int) and os.fspath(path) == str(folder):
                    raise PermissionError(13, "Permission denied", os.fspath(path))
                return real(path)

            monkeypatch.setattr(os, asked, answer)

    return forbid


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    with servers.or_skip(servers.mariadb()) as url:
        yield url


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    with servers.or_skip(servers.postgresql()) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/a folder/fleet.db"


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a database, which may contain data of the previous test."""
    monkeypatch.setenv("TABLEFERRY_FLEET_STORE_PASSWORD", servers.PASSWORD)
    url: str = request.getfixturevalue(request.param)
    return url
