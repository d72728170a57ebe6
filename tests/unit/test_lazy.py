"""Public names of packages that load their modules on first use."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from tableferry import fleet
from tableferry.fleet.operations.selection import select_jobs
from tableferry.fleet.queue import selections

PACKAGES = ["convert", "doctor", "fleet", "fleet.queue", "pipelines", "verify"]


@pytest.mark.parametrize("name", PACKAGES)
def test_package_has_every_name_of_its_stub(name: str) -> None:
    package = importlib.import_module(f"tableferry.{name}")
    assert package.__all__ == sorted(package.__all__) == dir(package)
    for public in package.__all__:
        thing = getattr(package, public)
        assert isinstance(thing, ModuleType) or thing.__module__.startswith("tableferry."), public


def test_lazy_name_is_attribute_of_module_or_module() -> None:
    assert fleet.select_jobs is select_jobs
    assert fleet.selections is selections


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"tableferry\.fleet .*nothing"):
        getattr(fleet, "nothing")  # noqa: B009  # Type checkers know that it is missing.


@pytest.mark.parametrize("name", PACKAGES)
def test_package_loads_modules_on_first_use(name: str) -> None:
    program = f"import sys, tableferry.{name}; print([m for m in sys.modules if 'tableferry.{name}.' in m])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
