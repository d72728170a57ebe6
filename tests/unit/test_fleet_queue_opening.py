"""From an address to a queue, and a database's tables from one version to the next."""

from __future__ import annotations

import importlib
import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text
from tests import servers
from tests.fleet_queue import NOW, name
from tests.workspace import FakeWorkspace

from tableferry.errors import TableferryError
from tableferry.fleet import queue
from tableferry.fleet.job import Job
from tableferry.fleet.queue.migrating import config, upgrade
from tableferry.fleet.queue.opening import PASSWORD_VARIABLE, open_store
from tableferry.fleet.queue.schema import metadata
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.store import NewJob

VERSIONS = "tableferry_queue_version"


@pytest.fixture
def bare(url: str) -> Iterator[SqlStore]:
    """A store on a database without tables."""
    store = open_store(url)
    assert isinstance(store, SqlStore)
    Path(str(store._engine.url.database)).parent.mkdir(parents=True, exist_ok=True)
    _drop(store._engine)
    yield store
    _drop(store._engine)
    store.close()


def _drop(engine: Engine) -> None:
    metadata.drop_all(engine)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {VERSIONS}"))


def test_the_migrations_make_what_the_statements_are_for(bare: SqlStore) -> None:
    bare.create()
    with bare._engine.begin() as connection:
        told = {"version_table": VERSIONS, "compare_server_default": False}
        assert compare_metadata(MigrationContext.configure(connection, opts=told), metadata) == []


def test_a_database_of_an_older_version_keeps_its_jobs(bare: SqlStore) -> None:
    with bare._engine.begin() as connection:
        upgrade(connection, "0001")
        # As somebody writes a job by hand, who leaves everything else to the table.
        connection.execute(
            text(
                "INSERT INTO jobs (catalog_name, db_name, tbl_name) "
                "VALUES ('spark_catalog', 'sales', 'orders')"
            )
        )
    bare.create()
    [job] = bare.jobs(everything())
    expected = Job(
        1,
        "spark_catalog",
        "sales",
        "orders",
        created_at=job.created_at,
        last_updated_time=job.last_updated_time,
    )
    assert job == expected
    assert bare.add([NewJob(name("orders")), NewJob(name("items"))], NOW) == 1


def test_a_migration_that_was_broken_off_goes_on(bare: SqlStore) -> None:
    """MySQL keeps what a migration did before it was broken off."""
    bare.create()
    assert bare.add([NewJob(name("orders"))], NOW) == 1
    with bare._engine.begin() as connection:
        connection.execute(text(f"DELETE FROM {VERSIONS}"))
        connection.execute(text("DROP TABLE letters"))
    bare.create()
    assert len(bare.jobs(everything())) == 1
    assert bare.letters(["<1@x>"]) == {}


def test_many_can_make_the_tables_at_once(bare: SqlStore, url: str) -> None:
    errors: list[Exception] = []
    begin = threading.Barrier(6)

    def make() -> None:
        store = open_store(url)
        try:
            begin.wait()
            store.create()
        except Exception as error:
            errors.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert bare.add([NewJob(name("orders"))], NOW) == 1


def test_a_newer_queue_is_left_alone(bare: SqlStore) -> None:
    bare.create()
    with bare._engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSIONS} SET version_num = '9999'"))
    with pytest.raises(TableferryError, match=r"was made by a newer Tableferry .*: upgrade this one"):
        bare.create()


@pytest.mark.parametrize("dialect", ["sqlite", "mysql+pymysql", "postgresql+psycopg"])
def test_an_administrator_can_read_what_an_upgrade_runs(dialect: str) -> None:
    told = config()
    told.output_buffer = written = io.StringIO()
    told.set_main_option("sqlalchemy.url", f"{dialect}://")
    command.upgrade(told, "0001:head", sql=True)
    said = written.getvalue()
    assert "CREATE TABLE" in said
    assert "ADD COLUMN lease_until" in said or "ADD COLUMN `lease_until`" in said
    assert "tbl_owners" in said.split("jobs_archive")[1]


def test_a_database_without_a_queue_says_how_to_make_it(bare: SqlStore) -> None:
    with pytest.raises(
        TableferryError, match=r"there is no queue at .*: make it with `tableferry fleet init`"
    ):
        bare.jobs(everything())


def test_a_file_is_read_while_it_is_written_and_no_commit_waits_for_the_disk(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/fleet.db")
    assert isinstance(store, SqlStore)
    store.create()
    with store._engine.begin() as connection:
        said = [
            connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")
        ]
    assert said == ["wal", 1]
    store.close()


def test_many_new_jobs_are_counted_for_postgresqls_plans(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, servers.PASSWORD)
    store = open_store(postgresql)
    assert isinstance(store, SqlStore)
    _drop(store._engine)
    store.create()
    store.add([NewJob(name(f"t{number}")) for number in range(1000)], NOW)
    with store._engine.connect() as connection:
        known = connection.execute(text("SELECT reltuples FROM pg_class WHERE relname = 'jobs'")).scalar()
    assert known == 1000
    _drop(store._engine)
    store.close()


def test_a_file_that_isnt_there_says_how_to_make_it(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/none/fleet.db")
    with pytest.raises(TableferryError, match=r"there is no queue at sqlite.*: make it with"):
        store.jobs(everything())
    store.create()
    assert list(store.jobs(everything())) == []


@pytest.mark.parametrize("scheme", ["postgres", "mysql"])
def test_a_server_that_doesnt_answer_is_named_without_its_password(scheme: str) -> None:
    address = f"{scheme}://ann:secret@127.0.0.1:{servers.free_port()}/fleet"
    with pytest.raises(
        TableferryError, match=r"ann:\*\*\*@127.*can't be reached .*: check the address"
    ) as caught:
        open_store(address).jobs(everything())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mariadb", "postgresql"], indirect=True)
def test_a_wrong_password_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "not it")
    with pytest.raises(TableferryError, match=r"can't be reached .*TABLEFERRY_FLEET_STORE_PASSWORD"):
        open_store(url).create()


def test_a_secret_has_the_password(
    logged_in: FakeWorkspace, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    logged_in.secrets["fleet", "queue"] = servers.PASSWORD
    store = open_store(postgresql, password_secret="fleet/queue")
    store.create()
    store.close()
    with pytest.raises(TableferryError, match="fleet/none with the queue's password can't be read"):
        open_store(postgresql, password_secret="fleet/none")
    with pytest.raises(TableferryError, match="store_password_secret is 'fleet': write it as scope/key"):
        open_store(postgresql, password_secret="fleet")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql"])
def test_a_mysql_is_spelled_in_any_way(scheme: str, mariadb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, servers.PASSWORD)
    store = open_store(mariadb.replace("mysql", scheme, 1))
    store.create()
    store.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_postgresql_is_spelled_in_any_way(
    scheme: str, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, servers.PASSWORD)
    store = open_store(postgresql.replace("postgresql", scheme, 1))
    store.create()
    store.close()


@pytest.mark.parametrize("address", ["oracle://ann:secret@host/db", "fleet.db", "", "mysql://h:x/d"])
def test_what_is_no_queues_address_is_refused(address: str) -> None:
    with pytest.raises(TableferryError, match="isn't the address of a queue: write delta:") as caught:
        open_store(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "package", "extra"),
    [("mysql://h/d", "pymysql", "mysql"), ("postgresql://h/d", "psycopg", "postgres")],
)
def test_a_missing_driver_names_its_extra(
    address: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TableferryError, match=rf'needs the package {package}.*"tableferry\[{extra}\]"'):
        open_store(address)


def test_a_missing_database_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(TableferryError, match=r'needs the package sqlalchemy.*"tableferry\[fleet\]"'):
            importlib.reload(queue)
    importlib.reload(queue)


def test_a_queue_in_delta_asks_for_a_session_when_it_is_opened() -> None:
    asked: list[str] = []

    def resolve() -> None:
        asked.append("session")

    open_store("delta:main.fleet", resolve=resolve)  # type: ignore[arg-type]
    assert asked == ["session"]
