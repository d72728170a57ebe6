"""From an address to a queue, and a database's tables from one version to the next."""

from __future__ import annotations

import importlib
import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
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
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.delta_tables import PROPERTIES, DeltaTables
from tableferry.fleet.queue.migrating import config, upgrade
from tableferry.fleet.queue.opening import PASSWORD_VARIABLE, open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.schema import REVISION, VERSION_TABLE, metadata
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.sql import SqlStore
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


def test_the_migrations_make_the_tables_of_the_definition(bare: SqlStore) -> None:
    """With their columns' order and defaults, as this very database tells them."""
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


def test_the_tables_in_delta_keep_their_columns() -> None:
    job, notification, wave = (" ".join(text.split()) for text in (DELTA_JOB, DELTA_NOTIFICATION, DELTA_WAVE))
    columns = {
        "jobs": f"task_id BIGINT GENERATED BY DEFAULT AS IDENTITY, {job}",
        "jobs_archive": f"task_id BIGINT NOT NULL, {job}, archived_at TIMESTAMP NOT NULL",
        "letters": notification,
        "waves": wave,
    }
    delta = DeltaTables(TableName.parse("hive.fleet"))
    assert list(delta.later_columns()) == [(delta.jobs, DELTA_LATER), (delta.archive, DELTA_LATER)]
    schema, *tables, clock, _ = delta.definitions()
    assert schema == "CREATE SCHEMA IF NOT EXISTS `hive`.`fleet`"
    assert tables == [
        f"CREATE TABLE IF NOT EXISTS `hive`.`fleet`.`{name}` ({text}) USING delta {PROPERTIES}"
        for name, text in columns.items()
    ]
    # In-commit timestamps would be of the writers' own clocks.
    assert clock.startswith("CREATE TABLE IF NOT EXISTS `hive`.`fleet`.`clock` (asked STRING) USING delta ")
    assert "'delta.enableInCommitTimestamps' = 'false'" in clock


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


@pytest.mark.parametrize("version", ["0002", "0003"])
def test_a_queue_of_an_older_version_says_how_to_bring_it_up_to_this_one(
    bare: SqlStore, version: str
) -> None:
    with bare._engine.begin() as connection:
        upgrade(connection, version)
    with conditions.raises("QUEUE_VERSION_TOO_OLD"):
        bare.jobs(everything())
    bare.create()
    assert list(bare.jobs(everything())) == []


def test_a_migration_that_was_broken_off_goes_on(bare: SqlStore) -> None:
    """MySQL keeps what a migration did before it was broken off."""
    bare.create()
    assert bare.add([NewJob(name("orders"))], NOW) == 1
    with bare._engine.begin() as connection:
        connection.execute(text(f"DELETE FROM {VERSIONS}"))
        connection.execute(text("DROP TABLE letters"))
    bare.create()
    assert len(bare.jobs(everything())) == 1
    assert bare.notifications(["<1@x>"]) == {}


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
    with conditions.raises("QUEUE_REVISION_UNKNOWN", reason=re.compile("9999")):
        bare.create()


def test_a_newer_queue_is_neither_read_nor_written(bare: SqlStore, url: str) -> None:
    """An older package would ignore what is new there, and send notifications once more."""
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


def test_the_revision_is_the_newest_of_the_migrations() -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == REVISION


@pytest.mark.parametrize("dialect", ["sqlite", "mysql+pymysql", "postgresql+psycopg"])
def test_an_administrator_can_read_what_an_upgrade_runs(dialect: str) -> None:
    configuration = config()
    configuration.output_buffer = written = io.StringIO()
    configuration.set_main_option("sqlalchemy.url", f"{dialect}://")
    command.upgrade(configuration, "0001:head", sql=True)
    script = written.getvalue()
    assert "CREATE TABLE" in script
    assert "ADD COLUMN lease_until" in script or "ADD COLUMN `lease_until`" in script
    assert "tbl_owners" in script.split("jobs_archive")[1]
    assert "ADD COLUMN wave" in script or "ADD COLUMN `wave`" in script
    assert script.count("ADD COLUMN close_at") + script.count("ADD COLUMN `close_at`") == 2


_KILL = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    "AND datname = current_database()",
    "mysql": "SELECT concat('KILL ', id) FROM information_schema.processlist WHERE id <> connection_id() "
    "AND db = database()",
}


def kill_connections(url: str) -> None:
    """Let the server end all other connections to the queue."""
    store = open_store(url)
    assert isinstance(store, SqlStore)
    with store._engine.connect() as connection:
        statements = connection.execute(text(_KILL[connection.dialect.name])).scalars().all()
        if connection.dialect.name == "mysql":
            for statement in statements:
                connection.execute(text(statement))
    store.close()


def writes(store: SqlStore) -> dict[str, Callable[[], object]]:
    """Return each way to write, all on jobs and waves of their own."""
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
def test_a_connection_that_the_server_ended_is_made_again(bare: SqlStore, url: str) -> None:
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
def test_a_commit_whose_answer_was_lost_counts_once(bare: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_database_without_a_queue_says_how_to_make_it(bare: SqlStore) -> None:
    with conditions.raises("QUEUE_NOT_FOUND"):
        bare.jobs(everything())


def test_a_file_is_read_while_it_is_written_and_no_commit_waits_for_the_disk(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/fleet.db")
    assert isinstance(store, SqlStore)
    store.create()
    with store._engine.begin() as connection:
        pragmas = [
            connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")
        ]
    assert pragmas == ["wal", 1]
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


def test_a_file_that_isnt_there_says_how_to_make_it(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/none/fleet.db")
    with conditions.raises("QUEUE_NOT_FOUND", queue=re.compile("^sqlite")):
        store.jobs(everything())
    store.create()
    assert list(store.jobs(everything())) == []


@pytest.mark.parametrize("scheme", ["postgres", "mysql"])
def test_a_server_that_doesnt_answer_is_named_without_its_password(scheme: str) -> None:
    address = f"{scheme}://ann:secret@127.0.0.1:{servers.free_port()}/fleet"
    with pytest.raises(ServiceError) as caught:
        open_store(address).jobs(everything())
    conditions.check(caught.value, "QUEUE_UNREACHABLE", queue=re.compile(r"ann:\*\*\*@127"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mariadb", "postgresql"], indirect=True)
def test_a_wrong_password_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "not it")
    with conditions.raises("QUEUE_UNREACHABLE"):
        open_store(url).create()


def test_a_secret_has_the_password(
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
    with pytest.raises(InputError) as caught:
        open_store(address)
    conditions.check(caught.value, "QUEUE_ADDRESS_INVALID")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "package"), [("mysql://h/d", "pymysql"), ("postgresql://h/d", "psycopg")]
)
def test_a_missing_driver_names_its_extra(
    address: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    install = "pip install 'tableferry[fleet]'"
    with conditions.raises("MISSING_DRIVER_FOR_QUEUE", package=package, command=install):
        open_store(address)


def test_a_missing_database_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        install = "pip install 'tableferry[fleet]'"
        with conditions.raises("MISSING_PACKAGE_FOR_QUEUE", package="sqlalchemy", command=install):
            importlib.reload(queue)
    importlib.reload(queue)


def test_a_queue_in_a_file_is_refused_where_only_whole_files_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = "sqlite:////Volumes/main/fleet/state/fleet.db"
    open_store(address).close()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with conditions.raises("QUEUE_IN_VOLUME", file="/Volumes/main/fleet/state/fleet.db"):
        open_store(address)


def test_a_queue_in_delta_asks_for_a_session_when_it_is_opened() -> None:
    asked: list[str] = []

    def resolve() -> None:
        asked.append("session")

    open_store("delta:main.fleet", resolve=resolve)  # type: ignore[arg-type]
    assert asked == ["session"]


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_a_password_among_the_options_is_shown_to_nobody(scheme: str) -> None:
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
