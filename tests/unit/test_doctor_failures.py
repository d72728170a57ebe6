"""Each check of the environment fails once: a new check needs a case here."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tableferry.doctor import DoctorOptions, Outcome, examine, machine_checks
from tableferry.doctor.check_list import CHECKS
from tableferry.errors import SessionError
from tableferry.spark import session, warehouse_lock

Usage = namedtuple("Usage", "total used free")


@dataclass
class Setup:
    """The environment of a case, which the case changes.

    Attributes:
        patch: Replaces functions of the environment.
        folder: An empty folder.
        options: The options of the doctor.
    """

    patch: pytest.MonkeyPatch
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)


Case = Callable[[Setup], str]
"""Breaks the environment, and returns a part of what the check reports."""


def old_python(setup: Setup) -> str:
    setup.patch.setattr(sys, "version_info", (3, 9, 7, "final", 0))
    return "Python 3.9.7"


def missing_java(setup: Setup) -> str:
    setup.patch.setenv("JAVA_HOME", str(setup.folder))
    return "doesn't run"


def other_delta(setup: Setup) -> str:
    setup.patch.setattr("tableferry.spark.local_settings.versions", lambda: ("4.1.4", "3.0.0"))
    return "delta-spark 3.0.0; expected delta-spark 4.4.0"


def full_disk(setup: Setup) -> str:
    setup.patch.setattr("shutil.disk_usage", lambda folder: Usage(10, 10, 5 * 10**8))
    return "500.0 MB free"


def read_only_folder(setup: Setup) -> str:
    def write(path: Path, text: str, **_: str) -> None:
        raise PermissionError(13, "Permission denied")

    setup.patch.setattr(Path, "write_text", write)
    return "permission denied"


def locked_metastore(setup: Setup) -> str:
    def acquire(folder: Path) -> int:
        raise SessionError("WAREHOUSE_IN_USE", warehouse=folder, process="4711")

    setup.patch.setattr(warehouse_lock, "acquire", acquire)
    return "in use by process 4711"


def no_session(setup: Setup) -> str:
    def resolve(*_: object, **__: object) -> None:
        raise SessionError("JAVA_ENDED_EARLY", cause="no memory", log="spark.log")

    setup.patch.setattr(session, "resolve", resolve)
    return "no memory"


def no_jars(setup: Setup) -> str:
    setup.patch.setattr(machine_checks, "_downloaded_jars", lambda: ["delta-spark_4.1_2.13-4.4.0.jar"])
    return "missing: iceberg-spark-runtime"


CASES: Mapping[str, Case] = {
    "python": old_python,
    "java": missing_java,
    "packages": other_delta,
    "disk-space": full_disk,
    "warehouse-folder": read_only_folder,
    "metastore": locked_metastore,
    "spark-session": no_session,
    "jars": no_jars,
}


def test_each_check_has_a_failing_case() -> None:
    assert list(CASES) == [check.name for check in CHECKS]


@pytest.mark.parametrize("name", [check.name for check in CHECKS])
def test_check_fails_with_what_was_seen_and_a_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(monkeypatch, tmp_path, {"warehouse": tmp_path / "warehouse"})
    expected = CASES[name](setup)
    report = examine(DoctorOptions(**setup.options), names=[name])
    (result,) = report.results
    assert result.outcome is Outcome.FAILED, result
    assert expected in result.seen
    assert result.remedy
    assert not report.ok
    assert list(tmp_path.iterdir()) == []
