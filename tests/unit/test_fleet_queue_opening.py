"""Open a queue by its address, and upgrade a database's tables."""

from __future__ import annotations

import importlib
import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event, inspect, text
from tests import conditions, servers
from tests.fleet_queue import NOW, name
from tests.workspace import FakeWorkspace

from tableferry.errors import InputError, ServiceError
from tableferry.fleet import queue
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.delta_tables import PROPERTIES, DeltaTables
from tableferry.fleet.queue.opening import PASSWORD_VARIABLE, open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.schema import REVISION, VERSION_TABLE, metadata
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.upgrades import config, upgrade
from tableferry.spark.tables import TableName

VERSIONS = VERSION_TABLE


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


def test_migrations_create_the_defined_tables(bare: SqlStore) -> None:
    """Compare columns, their order and defaults, as the database reports them."""
    metadata.create_all(bare._engine)
    defined = reflected(bare._engine)
    _drop(bare._engine)
    bare.create()
    assert reflected(bare._engine) == defined


def reflected(engine: Engine) -> dict[str, Any]:
    inspector = inspect(engine)
    # The oldest SQLAlchemy that is supported knows no options of the other databases' tables.
    has_options = engine.dialect.name in ("mysql", "mariadb")
    return {
        table: {
            "columns": [{**column, "type": repr(column["type"])} for column in inspector.get_columns(table)],
            "key": inspector.get_pk_constraint(table),
            "unique": inspector.get_unique_constraints(table),
            "indexes": sorted(inspector.get_indexes(table), key=lambda index: str(index["name"])),
            "options": inspector.get_table_options(table) if has_options else {},
        }
        for table in metadata.tables
    }


# There are no migrations of Delta tables: those that exist have these columns, in this order, and what later
# versions have more is added.
DELTA_JOB = """
    catalog_name STRING NOT NULL,
    db_name STRING NOT NULL,
    tbl_name STRING NOT NULL,
    stg_format STRING,
    data_category STRING NOT NULL,
    tbl_owners STRING,
    downstream_users STRING,
    to_be_processed BOOLEAN NOT NULL,
    in_process BOOLEAN NOT NULL,
    state STRING NOT NULL,
    desired_state STRING NOT NULL,
    initial_gap_days INT NOT NULL,
    probation_gap_days INT NOT NULL,
    comm_level1_date TIMESTAMP,
    comm_level2_date TIMESTAMP,
    comm_level3_date TIMESTAMP,
    shadow_watermark STRING,
    migration_paused BOOLEAN NOT NULL,
    pause_reason STRING NOT NULL,
    shadow_status STRING,
    created_at TIMESTAMP NOT NULL,
    last_updated_time TIMESTAMP NOT NULL,
    target_format STRING NOT NULL,
    revision INT NOT NULL,
    claimed_by STRING,
    lease_until TIMESTAMP,
    record STRING,
    events ARRAY<STRUCT<at: TIMESTAMP, state: STRING, desired_state: STRING, paused: BOOLEAN,
        pause_reason: STRING, worker: STRING>>
"""
DELTA_LATER = {
    "wave": "STRING",
    "table_files": "INT",
    "table_bytes": "BIGINT",
    "begun_at": "TIMESTAMP",
    "close_at": "TIMESTAMP",
    **dict.fromkeys(("target_catalog", "target_schema", "old_name"), "STRING"),
    "rewrite": "BOOLEAN",
    "archived_at": "TIMESTAMP",
}
DELTA_NOTIFICATION = """
    message_id STRING NOT NULL,
    level INT NOT NULL,
    task_ids STRING NOT NULL,
    recipients STRING NOT NULL,
    recorded_at TIMESTAMP NOT NULL,
    sent_at TIMESTAMP
"""
DELTA_WAVE = """
    name STRING NOT NULL,
    status STRING NOT NULL,
    reason STRING NOT NULL,
    tables_at_once INT,
    bytes_an_hour BIGINT,
    hours STRING NOT NULL,
    time_zone STRING NOT NULL,
    stop_percent INT NOT NULL,
    started_at TIMESTAMP,
    revision INT NOT NULL
"""


def test_delta_tables_keep_their_columns() -> None:
    texts = (DELTA_JOB, DELTA_NOTIFICATION, DELTA_WAVE)
    job, notification, wave = (" ".join(text.split()) for text in texts)
    columns = {
        "jobs": f"task_id BIGINT GENERATED BY DEFAULT AS IDENTITY, {job}",
        "letters": notification,
        "waves": wave,
    }
    delta = DeltaTables(TableName.parse("hive.fleet"))
    assert delta.later_columns() == DELTA_LATER
    schema, *tables, clock = delta.definitions()
    assert schema == "CREATE SCHEMA IF NOT EXISTS `hive`.`fleet`"
    assert tables == [
        f"CREATE TABLE IF NOT EXISTS `hive`.`fleet`.`{name}` ({text}) USING delta {PROPERTIES}"
        for name, text in columns.items()
    ]
    # In-commit timestamps would be times of the writers' clocks.
    assert clock.startswith("CREATE TABLE IF NOT EXISTS `hive`.`fleet`.`clock` (asked STRING) USING delta ")
    assert "'delta.enableInCommitTimestamps' = 'false'" in clock


def test_upgraded_database_keeps_its_jobs(bare: SqlStore) -> None:
    with bare._engine.begin() as connection:
        upgrade(connection, "0001")
        # A user inserts a job by SQL, with the table's defaults for the other columns.
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


@pytest.mark.parametrize("version", ["0002", "0003"])
def test_older_queue_is_refused_until_it_is_upgraded(bare: SqlStore, version: str) -> None:
    with bare._engine.begin() as connection:
        upgrade(connection, version)
    with conditions.raises("QUEUE_VERSION_TOO_OLD"):
        bare.jobs(everything())
    bare.create()
    assert list(bare.jobs(everything())) == []


def test_interrupted_migration_continues(bare: SqlStore) -> None:
    """MySQL keeps the changes of an interrupted migration."""
    bare.create()
    assert bare.add([NewJob(name("orders"))], NOW) == 1
    with bare._engine.begin() as connection:
        connection.execute(text(f"DELETE FROM {VERSIONS}"))
        connection.execute(text("DROP TABLE letters"))
    bare.create()
    assert len(bare.jobs(everything())) == 1
    assert bare.notifications(["<1@x>"]) == {}


class Killed(Exception):
    """The crash of a process."""


def write_archive_of_0006(store: SqlStore, *, by_hand: bool) -> None:
    """Write a queued and an archived job into tables of revision 0006, which had a table of archived jobs.

    Args:
        store: An empty database.
        by_hand: Also write another archived job, whose table has a job that a person inserted.
    """
    columns = "catalog_name, db_name, tbl_name, state, tbl_owners, wave, record, last_updated_time, revision"
    queued = ["1, 'c', 's', 'a', 'Ready', NULL, NULL, NULL, '2026-03-01 00:00:00', 3"]
    archived = [
        "2, 'c', 's', 'b', 'HiveDropped', '[\"x@y\"]', 'w', '{\"n\": 1}', '2026-03-02 00:00:00.000001', 9"
    ]
    if by_hand:
        archived.append("3, 'c', 's', 'h', 'HiveDropped', NULL, NULL, NULL, '2026-03-03 00:00:00', 2")
        queued.append("4, 'c', 's', 'h', 'Ready', NULL, NULL, NULL, '2026-03-01 00:00:00', 0")
    with store._engine.begin() as connection:
        upgrade(connection, "0006")
        for row in queued:
            connection.exec_driver_sql(f"INSERT INTO jobs (task_id, {columns}) VALUES ({row})")
        for row in archived:
            connection.exec_driver_sql(
                f"INSERT INTO jobs_archive (task_id, {columns}, archived_at) "
                f"VALUES ({row}, '2026-03-09 00:00:00.5')"
            )


def check_archived_job(store: SqlStore) -> None:
    [job] = store.archived(everything())
    assert (job.task_id, job.tbl_owners, job.wave) == (2, ("x@y",), "w")
    assert job.record.others == {"n": 1}
    assert (job.state, job.revision) == (State.HIVE_DROPPED, 9)
    assert job.last_updated_time == datetime(2026, 3, 2, 0, 0, 0, 1, tzinfo=UTC)
    assert job.archived_at == datetime(2026, 3, 9, 0, 0, 0, 500_000, tzinfo=UTC)


def test_upgrade_leaves_an_archived_job_whose_table_has_another_job(
    bare: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    write_archive_of_0006(bare, by_hand=True)
    bare.create()
    check_archived_job(bare)
    assert [(job.task_id, job.tbl_name) for job in bare.jobs(everything())] == [(1, "a"), (4, "h")]
    assert "archived jobs 3 stay in jobs_archive" in caplog.text
    with bare._engine.begin() as connection:
        assert connection.execute(text("SELECT task_id FROM jobs_archive")).scalars().all() == [3]
        connection.execute(text("DROP TABLE jobs_archive"))


def test_upgrade_of_the_archive_continues_after_an_interruption_at_any_statement(bare: SqlStore) -> None:
    write_archive_of_0006(bare, by_hand=False)
    left = 0

    def die(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        nonlocal left
        if statement.split()[0] in ("ALTER", "CREATE", "DROP", "INSERT", "DELETE", "UPDATE"):
            left -= 1
            if left < 0:
                raise Killed

    event.listen(bare._engine, "before_cursor_execute", die)
    for allowed in range(8):
        left = allowed
        if left == 7:
            # The columns, the indexes, the rows, the table and the version.
            bare.create()
        else:
            with suppress(Killed):
                bare.create()
    event.remove(bare._engine, "before_cursor_execute", die)
    check_archived_job(bare)
    assert not inspect(bare._engine).has_table("jobs_archive")


def test_tables_are_created_by_several_processes_concurrently(bare: SqlStore, url: str) -> None:
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


def test_newer_queue_is_not_upgraded(bare: SqlStore) -> None:
    bare.create()
    with bare._engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSIONS} SET version_num = '9999'"))
    with conditions.raises("QUEUE_REVISION_UNKNOWN", reason=re.compile("9999")):
        bare.create()


def test_newer_database_is_neither_read_nor_written(bare: SqlStore, url: str) -> None:
    """An older package would ignore new columns, and send notifications again."""
    bare.create()
    bare.add([NewJob(name("orders"))], NOW)
    with bare._engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSIONS} SET version_num = '9999'"))
    older = open_store(url)
    for use in (
        lambda: older.jobs(everything()),
        older.now,
        lambda: older.claim(everything(), "w", now=NOW, lease=timedelta(hours=1), limit=1),
    ):
        with conditions.raises("QUEUE_VERSION_TOO_NEW"):
            use()
    older.close()
    [job] = bare.jobs(everything())
    assert job.claimed_by is None


def test_revision_is_that_of_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == REVISION


@pytest.mark.parametrize("dialect", ["sqlite", "mysql+pymysql", "postgresql+psycopg"])
def test_statements_of_an_upgrade_can_be_printed(dialect: str) -> None:
    configuration = config()
    configuration.output_buffer = written = io.StringIO()
    configuration.set_main_option("sqlalchemy.url", f"{dialect}://")
    command.upgrade(configuration, "0001:head", sql=True)
    script = written.getvalue()
    assert "CREATE TABLE" in script
    assert "ADD COLUMN lease_until" in script or "ADD COLUMN `lease_until`" in script
    assert "tbl_owners" in script.split("jobs_archive")[1]
    assert "INSERT INTO jobs (" in script
    assert "ADD COLUMN wave" in script or "ADD COLUMN `wave`" in script
    assert script.count("ADD COLUMN close_at") + script.count("ADD COLUMN `close_at`") == 2


_KILL = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    "AND datname = current_database()",
    "mysql": "SELECT concat('KILL ', id) FROM information_schema.processlist WHERE id <> connection_id() "
    "AND db = database()",
}


def kill_connections(url: str) -> None:
    """End all other connections to the queue on the server."""
    store = open_store(url)
    assert isinstance(store, SqlStore)
    with store._engine.connect() as connection:
        statements = connection.execute(text(_KILL[connection.dialect.name])).scalars().all()
        if connection.dialect.name == "mysql":
            for statement in statements:
                connection.execute(text(statement))
    store.close()


def writes(store: SqlStore) -> dict[str, Callable[[], object]]:
    """Return each operation that writes, each on separate jobs and waves."""
    store.add([NewJob(name(table)) for table in ("saved", "together", "edited", "claimed")], NOW)
    hour = timedelta(hours=1)
    claims = {job.tbl_name: job for job in store.claim(everything(), "w", now=NOW, lease=hour, limit=2)}
    others = {job.tbl_name: job for job in store.jobs(everything())}
    later = NOW + timedelta(minutes=1)
    record = JobRecord(others={"seen": ("a", 1)})
    saved, together = (replace(claims[table], record=record) for table in ("saved", "together"))
    return {
        "save": lambda: store.save(saved, later, release=True),
        "save_all": lambda: store.save_all([together], later, release=True)[0],
        "edit": lambda: store.edit(replace(others["edited"], record=record), later),
        "claim": lambda: store.claim(everything(), "v", now=later, lease=hour, limit=9)[-1],
        "save_wave": lambda: store.save_wave(Wave("w")),
        "add": lambda: store.add([NewJob(name("added"))], NOW),
    }


SERVERS = pytest.mark.parametrize("url", ["mariadb", "postgresql"], indirect=True)


@SERVERS
def test_connection_that_the_server_ended_is_replaced(bare: SqlStore, url: str) -> None:
    bare.create()
    kills = iter([False])

    def kill(*_: Any) -> None:
        if next(kills, False):
            kill_connections(url)

    event.listen(bare._engine, "before_cursor_execute", kill)
    for write in writes(bare).values():
        kills = iter([True])
        write()
    claimed = {job.tbl_name: job.claimed_by for job in bare.jobs(everything())}
    assert claimed == dict.fromkeys(("saved", "together", "edited", "claimed"), "v") | {"added": None}


@SERVERS
def test_commit_with_a_lost_answer_counts_once(bare: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.create()
    dialect, losses = bare._engine.dialect, iter([False])
    commit = dialect.do_commit
    lost: Any = dialect.dbapi.OperationalError  # type: ignore[union-attr]

    def losing(connection: Any) -> None:
        commit(connection)
        if next(losses, False):
            raise lost(2013, "the connection is lost") if dialect.name == "mysql" else lost("lost")

    calls = writes(bare)
    monkeypatch.setattr(dialect, "do_commit", losing)
    for how, write in calls.items():
        losses = iter([True])
        written = write()
        match how:
            case "save_wave":
                assert bare.waves() == [written]
            case "add":
                assert [job.tbl_name for job in bare.jobs(everything())][-1] == "added"
            case _:
                assert isinstance(written, Job)
                [there] = [job for job in bare.jobs(everything()) if job.task_id == written.task_id]
                assert replace(there, record=JobRecord()) == replace(written, record=JobRecord())


def test_database_without_a_queue_is_reported(bare: SqlStore) -> None:
    with conditions.raises("QUEUE_NOT_FOUND"):
        bare.jobs(everything())


def test_sqlite_file_is_read_while_it_is_written(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/fleet.db")
    assert isinstance(store, SqlStore)
    store.create()
    with store._engine.begin() as connection:
        pragmas = [
            connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")
        ]
    assert pragmas == ["wal", 1]
    store.close()


def test_many_new_jobs_update_statistics_of_postgresql(
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


@pytest.mark.parametrize(
    ("file", "condition"),
    [("none/fleet.db", "QUEUE_NOT_FOUND_IN_FOLDER"), ("/no/f.db", "QUEUE_NOT_FOUND")],
)
def test_missing_queue_in_a_relative_file_names_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, condition: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with conditions.raises(condition, queue=f"sqlite:///{file}"):
        open_store(f"sqlite:///{file}").jobs(everything())


def test_missing_file_is_reported(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/none/fleet.db")
    with conditions.raises("QUEUE_NOT_FOUND", queue=re.compile("^sqlite")):
        store.jobs(everything())
    store.create()
    assert list(store.jobs(everything())) == []


@pytest.mark.parametrize("scheme", ["postgres", "mysql"])
def test_unreachable_server_is_reported_without_its_password(scheme: str) -> None:
    address = f"{scheme}://ann:secret@127.0.0.1:{servers.free_port()}/fleet"
    with pytest.raises(ServiceError) as caught:
        open_store(address).jobs(everything())
    conditions.check(caught.value, "QUEUE_UNREACHABLE", queue=re.compile(r"ann:\*\*\*@127"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mariadb", "postgresql"], indirect=True)
def test_wrong_password_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "not it")
    with conditions.raises("QUEUE_UNREACHABLE"):
        open_store(url).create()


def test_password_is_read_from_a_secret(
    logged_in: FakeWorkspace, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    logged_in.secrets["fleet", "queue"] = servers.PASSWORD
    store = open_store(postgresql, password_secret="fleet/queue")
    store.create()
    store.close()
    with conditions.raises("SECRET_NOT_READABLE", secret="fleet/none", purpose="the queue's password"):
        open_store(postgresql, password_secret="fleet/none")
    with conditions.raises("SECRET_NAME_INVALID", setting="store_password_secret", text="fleet"):
        open_store(postgresql, password_secret="fleet")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql"])
def test_mysql_is_opened_by_each_scheme(scheme: str, mariadb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, servers.PASSWORD)
    store = open_store(mariadb.replace("mysql", scheme, 1))
    store.create()
    store.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_is_opened_by_each_scheme(
    scheme: str, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, servers.PASSWORD)
    store = open_store(postgresql.replace("postgresql", scheme, 1))
    store.create()
    store.close()


@pytest.mark.parametrize("address", ["oracle://ann:secret@host/db", "fleet.db", "", "mysql://h:x/d"])
def test_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(address)
    conditions.check(caught.value, "QUEUE_ADDRESS_INVALID")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "package"), [("mysql://h/d", "pymysql"), ("postgresql://h/d", "psycopg")]
)
def test_missing_driver_names_its_extra(address: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    install = "pip install 'tableferry[fleet]'"
    with conditions.raises("MISSING_DRIVER_FOR_QUEUE", package=package, command=install):
        open_store(address)


def test_missing_database_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        install = "pip install 'tableferry[fleet]'"
        with conditions.raises("MISSING_PACKAGE_FOR_QUEUE", package="sqlalchemy", command=install):
            importlib.reload(queue)
    importlib.reload(queue)


def test_sqlite_file_in_a_volume_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = "sqlite:////Volumes/main/fleet/state/fleet.db"
    open_store(address).close()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with conditions.raises("QUEUE_IN_VOLUME", file="/Volumes/main/fleet/state/fleet.db"):
        open_store(address)


def test_delta_queue_resolves_a_session_when_opened() -> None:
    asked: list[str] = []

    def resolve() -> None:
        asked.append("session")

    open_store("delta:main.fleet", resolve=resolve)  # type: ignore[arg-type]
    assert asked == ["session"]


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_password_in_options_is_not_shown(scheme: str) -> None:
    store = open_store(f"{scheme}://u@localhost:1/fleet?password=geheim")
    assert isinstance(store, SqlStore)
    assert store._engine.url.password == "geheim"
    with pytest.raises(ServiceError) as unreached:
        store.create()
    conditions.check(unreached.value, "QUEUE_UNREACHABLE")
    assert "geheim" not in str(unreached.value)
    with pytest.raises(InputError) as caught:
        open_store("postgre://u@localhost/fleet?password=geheim")
    conditions.check(caught.value, "QUEUE_ADDRESS_INVALID")
    assert "geheim" not in str(caught.value)
