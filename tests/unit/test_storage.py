"""Local disks and volumes: the adapter of a path, shared behaviour, and the errors of the workspace's API."""

from __future__ import annotations

import errno
import itertools
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import conditions
from tests.storage_behaviour import STATE, TABLES
from tests.workspace import FakeWorkspace

from tableferry import storage, workspace
from tableferry.errors import SessionError
from tableferry.storage.local import Local, on_network
from tableferry.storage.volume import Volume

VOLUME = "/Volumes/main/bronze/state"
FILE = Path(VOLUME, "tracking/part-00000.csv")


@pytest.fixture
def remote(logged_in: FakeWorkspace) -> FakeWorkspace:
    """A workspace with a volume, and this process is logged in to it."""
    assert logged_in.make_volume("main", "bronze", "state") == VOLUME
    return logged_in


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client wait without spending time."""
    passed = itertools.count()
    monkeypatch.setattr("databricks.sdk.clock.RealClock.sleep", lambda _, seconds: None)
    monkeypatch.setattr("databricks.sdk.clock.RealClock.time", lambda _: float(next(passed)))


def test_adapter_is_local_for_disks_and_volume_for_unmounted_volumes(
    remote: FakeWorkspace, tmp_path: Path
) -> None:
    assert isinstance(storage.adapter(tmp_path), Local)
    assert isinstance(storage.adapter(FILE), Volume)
    assert (storage.is_mounted(tmp_path), storage.is_mounted(FILE)) == (True, False)


@pytest.mark.parametrize("behaviour", [*STATE, *TABLES])
def test_local_disk_behaves_like_all_storage(
    tmp_path: Path, behaviour: Callable[[Local, Path], None]
) -> None:
    behaviour(Local(), tmp_path)


def test_disk_of_this_machine_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(handle: object, operation: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr("fcntl.flock", lock)
    path = tmp_path / "_a.lock"
    with conditions.raises("LOCK_FAILED", file=path), storage.locked([path], "a run"):
        pass
    monkeypatch.setattr("tableferry.storage.local.on_network", lambda path: True)
    with storage.locked([path], "a run"):
        assert path.exists()


@pytest.mark.parametrize("behaviour", STATE)
def test_volume_behaves_like_all_storage(
    remote: FakeWorkspace, behaviour: Callable[[Volume, Path], None]
) -> None:
    folder = FILE.parent
    adapter = storage.adapter(folder)
    assert isinstance(adapter, Volume)
    behaviour(adapter, folder)


def test_mounted_volume_uses_local_adapter(remote: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path: str(path) == VOLUME or real(path))
    assert isinstance(storage.adapter(FILE), Local)
    assert remote.asked == []


def test_volume_inside_a_workspace_is_accessed_through_the_files_api(
    remote: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path: str(path) == VOLUME or real(path))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert isinstance(storage.adapter(FILE), Volume)
    assert storage.is_mounted(FILE)
    assert [storage.create_text(FILE, text) for text in ("first", "second")] == [True, False]
    assert remote.files == {str(FILE): b"first"}


def test_one_of_concurrent_writers_inside_a_workspace_creates_the_file(
    remote: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    writers = [str(number) for number in range(8)]
    with ThreadPoolExecutor(len(writers)) as pool:
        created = list(pool.map(lambda text: storage.create_text(FILE, text), writers))
    winners = [text for text, won in zip(writers, created, strict=True) if won]
    assert [storage.read_text(FILE)] == winners


def test_volume_inside_a_workspace_without_login_goes_through_the_mount(
    remote: FakeWorkspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    reason = SessionError(
        "WORKSPACE_LOGIN_MISSING", host="the workspace", reason="no login", command="log in"
    )

    def no_login() -> None:
        raise reason

    monkeypatch.setattr(workspace, "client", no_login)
    for _ in range(2):
        assert isinstance(storage.adapter(FILE), Local)
    assert storage.is_mounted(FILE)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [VOLUME]
    with conditions.raises("VOLUME_MISSING", path=FILE):
        storage.make_folder(FILE)
    assert remote.asked == []


def test_missing_volume_is_reported_and_not_read_as_empty(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conditions.raises("VOLUME_MISSING_IN_WORKSPACE", volume=VOLUME, host=re.compile("^http://127")):
        storage.read_text(FILE)
    monkeypatch.delenv("DATABRICKS_HOST")
    with conditions.raises("VOLUME_MISSING", path=FILE):
        storage.read_text(FILE)


def test_client_and_volume_check_are_cached(remote: FakeWorkspace) -> None:
    assert workspace.client() is workspace.client()
    for _ in range(3):
        assert storage.read_text(FILE) is None
    assert [request for request in remote.asked if request.startswith("HEAD")] == [
        f"HEAD /api/2.0/fs/directories{VOLUME}"
    ]


def test_changed_login_creates_a_new_client(remote: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    first = workspace.client()
    monkeypatch.setenv("DATABRICKS_TOKEN", "another")
    assert workspace.client() is not first
    with conditions.raises(
        "VOLUME_REQUEST_FAILED",
        failure="can't be reached",
        reason="Unauthorized",
        advice=re.compile("(?i)^log in with `databricks auth login"),
    ):
        storage.read_text(FILE)


def test_missing_login_is_reported_with_path_and_login_command(
    remote: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_TOKEN")
    monkeypatch.setenv("PATH", "")
    no_login = re.compile(rf"no login to {remote.url} \(.*\)")
    advice = re.compile("^Log in with `databricks auth login --host ")
    with conditions.raises("VOLUME_UNREACHABLE", path=FILE, reason=no_login, advice=advice):
        storage.read_text(FILE)


def test_missing_client_package_is_reported(remote: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    advice = "Install it: pip install 'tableferry[databricks]'."
    with conditions.raises("VOLUME_UNREACHABLE", path=FILE, advice=advice):
        storage.read_text(FILE)


@pytest.mark.usefixtures("hurried")
def test_unreachable_workspace_is_reported(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", "http://127.0.0.1:1")
    with conditions.raises(
        "VOLUME_REQUEST_FAILED",
        path=re.compile("^/Volumes/"),
        reason=re.compile("127.0.0.1:1 doesn't answer: ConnectionError$"),
        advice=re.compile("(?i)^check DATABRICKS_HOST"),
    ):
        storage.read_text(FILE)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "work",
    [
        storage.read_text,
        lambda path: storage.write_text(path, ""),
        lambda path: storage.create_text(path, ""),
        storage.exists,
        storage.names,
        storage.make_folder,
        storage.remove,
        lambda path: storage.move(path, path / "other"),
    ],
    ids=["read", "write", "create", "exists", "names", "make", "remove", "move"],
)
def test_denied_request_is_reported_with_the_path(remote: FakeWorkspace, work: object) -> None:
    assert callable(work)
    remote.denied = (f"{VOLUME}/",)
    with conditions.raises(
        "VOLUME_REQUEST_FAILED",
        path=re.compile(f"^{FILE}"),
        reason=re.compile("READ VOLUME|Forbidden"),
        advice=re.compile("(?i)^ask its owner"),
    ):
        work(FILE)


def test_names_include_every_page_without_hidden_names(remote: FakeWorkspace) -> None:
    names = [f"part-{number}" for number in range(8)]
    for name in [*names, "_claim", ".crc"]:
        storage.write_text(Path(VOLUME, "a", name), "")
    assert storage.names(Path(VOLUME, "a")) == tuple(names)
    assert storage.names(Path(VOLUME, "b")) == ()


def test_file_that_is_not_text_is_reported(remote: FakeWorkspace) -> None:
    remote.files[str(FILE)] = b"\xff"
    with conditions.raises("FILE_NOT_TEXT", file=FILE):
        storage.read_text(FILE)


@pytest.mark.usefixtures("hurried")
def test_creation_with_lost_answer_counts_as_lost(remote: FakeWorkspace) -> None:
    storage.make_folder(FILE.parent)
    remote.lose_next_answer()
    assert storage.create_text(FILE, "mine") is False
    assert storage.create_text(FILE, "another's") is False
    assert storage.read_text(FILE) == "mine"


def test_remove_deletes_the_whole_folder_and_no_sibling(remote: FakeWorkspace) -> None:
    for name in ("a/b/c", "a/.hidden", "a/d", "ab"):
        storage.write_text(Path(VOLUME, name), "")
    for _ in range(2):
        storage.remove(Path(VOLUME, "a"))
        assert list(remote.files) == [f"{VOLUME}/ab"]
        assert remote.folders == {VOLUME}
    storage.remove(Path(VOLUME, "ab"))
    assert remote.files == {}


@pytest.mark.parametrize("crash", ["after the copies", "among the removals"])
def test_interrupted_move_is_resumed(remote: FakeWorkspace, crash: str) -> None:
    old, new = Path(VOLUME, "old"), Path(VOLUME, "new")
    for name in ("offsets/0", "offsets/1", "metadata"):
        storage.write_text(old / name, name)
        storage.write_text(new / name, name)
    if crash == "among the removals":
        storage.remove(old / "offsets/0")
    storage.move(old, new)
    assert set(remote.files) == {str(new / name) for name in ("offsets/0", "offsets/1", "metadata")}
    assert str(old) not in remote.folders


def test_lock_on_unmounted_volume_writes_nothing(remote: FakeWorkspace) -> None:
    path = Path(VOLUME, "checkpoints/_a.lock")
    with storage.locked([path], "a"), storage.locked([path], "a"):
        assert remote.files == {}
    assert remote.folders == {VOLUME}


def test_file_in_place_of_a_folder_is_reported(remote: FakeWorkspace) -> None:
    storage.write_text(Path(VOLUME, "a"), "")
    with conditions.raises(
        "VOLUME_REQUEST_FAILED",
        path=f"{VOLUME}/a",
        failure="can't be written",
        reason=re.compile("existing file"),
    ):
        storage.make_folder(Path(VOLUME, "a"))


def test_fake_records_unknown_requests() -> None:
    with FakeWorkspace() as fake, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABRICKS_HOST", fake.url)
        patch.setenv("DATABRICKS_TOKEN", fake.token)
        with pytest.raises(Exception, match="isn't known here"):
            workspace.client().api_client.do("GET", "/api/2.0/clusters/list")
        assert fake.unknown == ["GET /api/2.0/clusters/list"]


def test_network_file_system_is_detected_by_its_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nfiler:/a /mnt/team\\040files nfs4 rw 0 0\n"
        "/dev/sdb /mnt/team\\040files/here xfs rw 0 0\nbucket /mnt/bucket fuse.s3fs rw 0 0\n"
        "dbfs /mnt/fuse fuse rw 0 0\n"
    )
    on = {
        "/mnt/team files/state": True,
        "/mnt/team files/here/state": False,
        "/mnt/bucket/a/b": True,
        "/mnt/fuse/a": True,
    }
    on |= {"/home/me/state": False, "/mnt": False}
    assert {path: on_network(Path(path), mounts) for path in on} == on
    assert not on_network(Path("/mnt/bucket"), tmp_path / "absent")
    assert [storage.is_shared(Path(path)) for path in ("/dbfs/mnt/state", "/Volumes/a/b/c/d")] == [True, True]
