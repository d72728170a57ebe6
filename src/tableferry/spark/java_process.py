"""The Java process of local Spark: find Java, start and stop it, and report why it failed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.errors import SessionError
from tableferry.spark import local_metastore

if TYPE_CHECKING:
    from pyspark import SparkConf

JAVA_VERSIONS = (17, 21)
INSTALL_JAVA = "Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"

# Derby's SQLSTATE for "another process has booted this database".
_DERBY_IN_USE = "XSDB6"


@dataclass(frozen=True)
class Java:
    """The Java that Spark's launcher would use.

    Attributes:
        program: The path of its program.
        version: Its major version.
    """

    program: str
    version: int


def check_java() -> str:
    """Check the Java that Spark's launcher would use, and return the path of its program.

    Raises:
        SessionError: As `find_java`.
    """
    return find_java().program


def find_java() -> Java:
    """Return the Java that Spark's launcher would use.

    Raises:
        SessionError: Java is missing, doesn't run, or has a version that Spark doesn't support.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    versions = " or ".join(str(version) for version in JAVA_VERSIONS)
    if java is None:
        raise SessionError("JAVA_MISSING", versions=versions, commands=INSTALL_JAVA)
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SessionError("JAVA_NOT_RUNNING", versions=versions, java=java, commands=INSTALL_JAVA) from error
    # Versions up to Java 8 begin with "1.".
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    if match is None or int(match[1]) not in JAVA_VERSIONS:
        version = match[1] if match else "of an unknown version"
        raise SessionError(
            "JAVA_VERSION_UNSUPPORTED", versions=versions, java=java, version=version, commands=INSTALL_JAVA
        )
    return Java(java, int(match[1]))


def launch(folder: Path, conf: SparkConf, lock: int) -> Any:
    """Start Java with the settings of a session, and return its py4j gateway.

    Java's output is written to ``spark.log`` in the warehouse's folder. Java inherits the warehouse's lock.

    Raises:
        SessionError: Java exits before it is ready.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    # Python workers must run the same Python; Spark would use the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # A killed run may have left files. This process holds the lock, so no other process needs them.
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "tmp").mkdir(exist_ok=True)
    start: Callable[..., Any] = launch_gateway  # It has no annotations.
    log = folder / "spark.log"
    with log.open("wb") as sink, locale_for(folder), download_lock():
        try:
            return start(conf, popen_kwargs={"stdout": sink, "stderr": sink, "pass_fds": (lock,)})
        except PySparkRuntimeError as error:
            raise ended_error(log, conf.get("spark.jars.packages") or "") from error


def end(gateway: Any) -> None:
    """Stop the Java process and clear pyspark's references to it, so that the next session starts another."""
    from pyspark import SparkContext

    if (context := SparkContext._active_spark_context) is not None:
        context.stop()
    gateway.shutdown()
    if gateway.proc is not None:
        # Java exits when its standard input is closed.
        gateway.proc.stdin.close()
        gateway.proc.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def ended_error(log: Path, packages: str) -> SessionError:
    """Return the error for a Java process that exited before Spark was ready."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lowered = text.lower()
    if "unresolved dependenc" in lowered or "download failed" in lowered:
        return SessionError("JARS_NOT_DOWNLOADED", packages=packages, log=log)
    return SessionError("JAVA_ENDED_EARLY", cause=_cause(text), log=log)


def not_open_error(folder: Path, message: str) -> SessionError:
    """Return the error for a session that couldn't start in a running Java process."""
    log = folder / "spark.log"
    text = message + "\n" + log.read_text(encoding="utf-8", errors="replace")
    if _DERBY_IN_USE in text:
        return SessionError("METASTORE_IN_USE", metastore=folder / local_metastore.FOLDER)
    return SessionError("SPARK_NOT_STARTED", warehouse=folder, cause=_cause(text), log=log)


def _cause(text: str) -> str:
    """Return the line of a log that names the deepest cause."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    errors = [line for line in lines if re.match(r"(Exception|Error|.*\b\w+(Exception|Error)\b)", line)]
    candidates = causes[-1:] or errors[:1] or [line for line in lines if line][-1:] or ["no reason given"]
    return candidates[0][:300].rstrip(".:")


@contextmanager
def locale_for(folder: Path) -> Iterator[None]:
    """Set a UTF-8 locale inside the ``with`` if the folder's path isn't ASCII.

    In other locales Java replaces such characters by ``?``.
    """
    if str(folder).isascii():
        yield
        return
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LC_ALL"]
        else:
            os.environ["LC_ALL"] = before


@contextmanager
def download_lock() -> Iterator[None]:
    """Wait while another process of this user starts Java.

    Spark's launcher downloads jars into a folder in the user's home. Two concurrent launchers would read each
    other's partial files.
    """
    import fcntl  # Missing on Windows, where the other kinds of sessions work.

    lock = os.open(
        Path(tempfile.gettempdir(), f"tableferry-{os.getuid()}.lock"), os.O_RDWR | os.O_CREAT, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
