"""Fixtures of all tests, and their order: the longest files first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import soak
from tests.workspace import FakeWorkspace

soak.load_profile()


# They start separate processes, or run code that no other file runs; most tests are of pipelines.
_ANYWHERE = ("test_convert", "test_demo", "test_fleet_metastore", "test_kafka")


# CPU seconds by file, as `tests.cpu_seconds` measures them; a file that isn't listed takes less than one.
_SECONDS = {
    file: int(seconds)
    for line in Path(__file__).with_name("seconds.tsv").read_text(encoding="utf-8").splitlines()
    for seconds, file in [line.split("\t")]
}


def _area(nodeid: str) -> str | None:
    """Name the area that a test belongs to; None where any process will do."""
    folder, _, file = nodeid.partition("::")[0].rpartition("/")
    if folder != "tests/spark" or file.startswith(_ANYWHERE):
        return None
    return "fleet" if file.startswith("test_fleet") else "pipelines"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign the tests of an area to one process, if whole files are assigned.

    Each process has a separate Java process, which takes ten times as long for the first statement of a kind.
    With separate areas, each kind has one first statement. The other files keep both processes busy to the
    end.
    """
    from xdist.scheduler import LoadFileScheduling

    if config.option.dist != "loadfile":
        return None

    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: _area(nodeid) or file_of(nodeid)
    return scheduler


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of longer runs, and start the longest files first: no worker is idle at the end."""

    def order(item: pytest.Item) -> tuple[bool, int]:
        return _area(item.nodeid) is None, -_SECONDS.get(item.nodeid.partition("::")[0], 0)

    items.sort(key=order)
    without = [] if soak.SOAKING else ["soak"] if soak.EVERYTHING_ONCE else ["soak", "slow"]
    if left_out := [item for item in items if any(map(item.get_closest_marker, without))]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not any(map(item.get_closest_marker, without))]


@pytest.fixture
def workspace() -> Iterator[FakeWorkspace]:
    """Run a fake workspace on localhost; a test with an unknown request fails at its end."""
    with FakeWorkspace() as fake:
        yield fake
    assert fake.unknown == []
    assert fake.broken == []


@pytest.fixture
def logged_in(workspace: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> FakeWorkspace:
    """Return the same workspace, with the login of a user's laptop in the environment."""
    for name in tuple(os.environ):
        if name.startswith(("DATABRICKS_", "ARM_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DATABRICKS_HOST", workspace.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", workspace.token)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", os.devnull)
    return workspace


@pytest.fixture(scope="session")
def cookiecutters_own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let cookiecutter see no settings of the user's, and keep nothing in the home folder."""
    folder = tmp_path_factory.mktemp("cookiecutter")
    config = folder / "config.yaml"
    config.write_text(f"replay_dir: {folder}/replay\ncookiecutters_dir: {folder}/cloned\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COOKIECUTTER_CONFIG", str(config))
        yield
