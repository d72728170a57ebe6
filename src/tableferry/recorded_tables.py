"""Record in which folders a local warehouse's catalog has its tables, as long as the catalog is unchanged.

Only the catalog says which table a name means, and asking it starts Spark. A local session's catalog is a
Derby metastore in the warehouse: while none of its files is written, and Spark is configured in the same way,
the catalog answers the same. Each record in ``<warehouse>/tables.json`` holds only together with these two.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

FILE = "tables.json"
METASTORE = "metastore_db"

# Variables that Spark's launcher, its Java process, Hadoop and Hive read.
_PREFIXES = ("SPARK_", "PYSPARK_", "HADOOP_", "HIVE_", "YARN_")
_JAVA_OPTIONS = ("CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# These name Python programs alone.
_HARMLESS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HIVE_CONF_DIR")


class NeedsSpark(Exception):
    """Only a Spark session has the answer."""


@dataclass(frozen=True)
class RecordedTables:
    """Stands in for a session where only table facts are read.

    Attributes:
        folders: The folder of each table, by `TableName.key`.
    """

    folders: Mapping[str, str]

    def folder(self, name: TableName) -> Path:
        """Return a table's folder.

        Raises:
            NeedsSpark: None is recorded.
        """
        if name.path is not None or name.key not in self.folders:
            raise NeedsSpark(f"the folder of {name} isn't recorded")
        return Path(self.folders[name.key])

    def __getattr__(self, name: str) -> Any:
        raise NeedsSpark(f"a session's {name} is needed")


@dataclass
class Recorder:
    """Notes in which folders the catalog of this process's local session has tables.

    Attributes:
        configuration: The digest of the configuration that the session was started with.
        noted: By `TableName.key`, a table's folder and the metastore's digest at that time.
    """

    spark: SparkSession
    warehouse: Path
    configuration: str
    noted: dict[str, tuple[str, str]] = field(default_factory=dict)

    def note(self, name: TableName, folder: Path) -> None:
        """Note the folder that the catalog has just given a table."""
        if name.path is None and self._is_in_default_catalog(name):
            self.noted[name.key] = str(folder), metastore_digest(self.warehouse)

    def write(self) -> None:
        """Write the notes that are still valid, and keep an earlier record that is."""
        digest = metastore_digest(self.warehouse)
        folders = {key: folder for key, (folder, then) in self.noted.items() if digest and then == digest}
        if not folders:
            return
        if earlier := read(self.warehouse, self.configuration):
            folders = {**earlier.folders, **folders}
        content = {"metastore": digest, "configuration": self.configuration, "folders": folders}
        file = self.warehouse / FILE
        try:
            half = file.with_suffix(".new")
            half.write_text(json.dumps(content, indent=2), encoding="utf-8")
            half.replace(file)
        except OSError as error:
            _log.debug("%s can't be written: %s", file, error)

    def _is_in_default_catalog(self, name: TableName) -> bool:
        """Say whether a new session finds the name in the metastore: it uses its default schema."""
        if len(name.parts) == 3:
            return name.parts[0].lower() == DEFAULT_CATALOG
        catalog = self.spark.catalog
        if catalog.currentCatalog() != DEFAULT_CATALOG:
            return False
        return len(name.parts) == 2 or catalog.currentDatabase() == "default"


_recorder: Recorder | None = None


def start(recorder: Recorder) -> None:
    """Start to note what a session's catalog says."""
    global _recorder
    _recorder = recorder


def stop() -> None:
    """Stop noting: the session has ended."""
    global _recorder
    _recorder = None


def note(spark: SparkSession, name: TableName, folder: Path) -> None:
    """Note the folder that the catalog of a session has just given a table, if it's this process's own."""
    if _recorder is not None and _recorder.spark is spark:
        _recorder.note(name, folder)


def write(spark: SparkSession) -> None:
    """Write the notes of a session's catalog, if it's this process's local session."""
    if _recorder is not None and _recorder.spark is spark:
        _recorder.write()


def read(warehouse: Path, configuration: str) -> RecordedTables | None:
    """Return the tables that are recorded in a warehouse; None where the catalog may differ by now."""
    try:
        content = json.loads((warehouse / FILE).read_text(encoding="utf-8"))
        digests, folders = (content["metastore"], content["configuration"]), dict(content["folders"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    metastore = metastore_digest(warehouse)
    return RecordedTables(folders) if metastore and digests == (metastore, configuration) else None


def metastore_digest(warehouse: Path) -> str:
    """Return a digest of the sizes and times of a metastore's files, which any write changes.

    It's empty where there is no metastore, or where the file system keeps whole seconds only.
    """
    files = sorted(_files(warehouse / METASTORE))
    if not any(time % 10**9 for _, _, time in files):
        return ""
    return _digest(files)


def configuration_digest(settings: Mapping[str, str], environ: Mapping[str, str], spark: Path) -> str:
    """Return a digest of everything that can give a local session another catalog.

    Args:
        settings: The session's own settings.
        environ: The environment variables.
        spark: Spark's own folder, where none is named in the environment.
    """
    variables = {
        name: value
        for name, value in environ.items()
        if (name.startswith(_PREFIXES) or name in _JAVA_OPTIONS) and name not in _HARMLESS
    }
    home = Path(environ.get("SPARK_HOME", spark), "conf")
    folders = [environ.get("SPARK_CONF_DIR", home), *(environ[name] for name in _FOLDERS if name in environ)]
    contents = [
        (str(path), path.read_bytes().hex())
        for folder in map(Path, folders)
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if path.is_file()
    ]
    return _digest([sorted(settings.items()), sorted(variables.items()), contents])


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """List files with their sizes, and their times in nanoseconds; but for Derby's locks."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir():
                    yield from _files(Path(entry.path))
                elif not entry.name.endswith(".lck"):
                    status = entry.stat()
                    yield entry.path, status.st_size, status.st_mtime_ns
    except OSError:
        return


def _digest(content: object) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()
