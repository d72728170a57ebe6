"""A MariaDB and a PostgreSQL server from Debian's packages, on loopback, in a folder that goes with them.

Only the programs are needed (mariadb-server-core and mariadb-client-core, postgresql): no service of the
machine is used or started. Both refuse to run as root, so root starts them as another user.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import psycopg
import pymysql
import pytest

PASSWORD = "it's p@ss/word:1?"

_PATIENCE_SECONDS = 60


class NotInstalled(Exception):
    """A server's programs aren't installed; the message has the command that installs them."""


@contextmanager
def or_skip(server: AbstractContextManager[str]) -> Iterator[str]:
    """Run a server; without its programs what needs it is skipped, but never in CI."""
    with ExitStack() as stack:
        try:
            address = stack.enter_context(server)
        except NotInstalled as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        yield address


@contextmanager
def postgresql(*, durable: bool = False) -> Iterator[str]:
    """Run PostgreSQL, and give the URL of a database without the password, which is `PASSWORD`.

    Args:
        durable: Whether a commit waits for the disk, which a test needn't.
    """
    postgres = _program("postgres", "/usr/lib/postgresql/*/bin", "postgresql")
    with _folder() as folder:
        word, data = folder / "word", folder / "data"
        word.write_text(PASSWORD)
        _give_away(word)
        initdb = Path(postgres).with_name("initdb")
        made = [
            "-D",
            data,
            "-U",
            "ferry",
            f"--pwfile={word}",
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--no-locale",
        ]
        _run([initdb, *made, "--no-sync"])
        port = free_port()
        command = [
            postgres,
            "-D",
            data,
            "-p",
            port,
            "-k",
            folder,
            "-h",
            "127.0.0.1",
            "-c",
            "max_connections=60",
        ]
        if not durable:
            command += ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]

        def ask() -> None:
            psycopg.connect(
                host="127.0.0.1", port=port, user="ferry", password=PASSWORD, dbname="postgres"
            ).close()

        with _running(command, folder, ask, psycopg.OperationalError):
            yield f"postgresql://ferry@127.0.0.1:{port}/postgres"


@contextmanager
def mariadb(*, durable: bool = False) -> Iterator[str]:
    """Run MariaDB, and give the URL of a database without the password, which is `PASSWORD`.

    Args:
        durable: Whether a commit waits for the disk, which a test needn't.
    """
    mariadbd = _program("mariadbd", "/usr/sbin", "mariadb-server-core mariadb-client-core")
    install = _program("mariadb-install-db", "/usr/bin", "mariadb-server-core mariadb-client-core")
    with _folder() as folder:
        data, begin = folder / "data", folder / "begin.sql"
        _run(
            [
                install,
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]
        )
        quoted = PASSWORD.replace("'", "''")
        begin.write_text(
            # A statement a line.
            "CREATE DATABASE fleet;\n"
            f"CREATE USER ferry@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
            "GRANT ALL ON fleet.* TO ferry@'127.0.0.1';\n"
        )
        _give_away(begin)
        port = free_port()
        command = [
            mariadbd,
            "--no-defaults",
            f"--datadir={data}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={folder}/socket",
            f"--pid-file={folder}/pid",
            f"--init-file={begin}",
            f"--innodb-flush-log-at-trx-commit={int(durable)}",
            "--skip-name-resolve",
        ]

        def ask() -> None:
            pymysql.connect(
                host="127.0.0.1", port=port, user="ferry", password=PASSWORD, database="fleet"
            ).close()

        with _running(command, folder, ask, pymysql.err.OperationalError):
            yield f"mysql://ferry@127.0.0.1:{port}/fleet"


def _program(name: str, folders: str, package: str) -> str:
    """Find a server's program: Debian keeps them where no user's PATH leads."""
    programs = [
        program for folder in sorted(glob.glob(folders)) if (program := shutil.which(name, path=folder))
    ]
    if path := programs[-1] if programs else shutil.which(name):
        return path
    raise NotInstalled(f"{name} isn't installed (Debian/Ubuntu: apt-get install {package})")


def _user() -> int | None:
    """Return the id of the user that runs servers if the current user is root."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _give_away(path: Path) -> None:
    if (user := _user()) is not None:
        os.chown(path, user, -1)


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder that the server's user can enter, which pytest's own aren't, with a path short enough."""
    with tempfile.TemporaryDirectory(prefix="tableferry-", dir="/tmp") as name:
        _give_away(Path(name))
        yield Path(name)


def _run(command: Sequence[object]) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        user=_user(),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@contextmanager
def _running(
    command: Sequence[object], folder: Path, ask: Callable[[], None], not_yet: type[Exception]
) -> Iterator[None]:
    """Run a server from the moment it answers."""
    log = folder / "log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [str(word) for word in command],
            user=_user(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                ask()
                break
            except not_yet as error:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(
                        f"{command[0]} doesn't answer:\n{log.read_text()[-3000:]}"
                    ) from error
                time.sleep(0.05)
        yield
    finally:
        # Both end with all their processes.
        server.send_signal(signal.SIGQUIT)
        server.wait()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
