"""Python projects as pyproject.toml describes them: entry points, and the modules that a wheel will hold."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tableferry.bundle.files import is_file, is_folder
from tableferry.bundle.problems import Problem

FILE = "pyproject.toml"


@dataclass(frozen=True)
class EntryPoint:
    """A name under which a wheel offers something to call.

    Attributes:
        name: The name.
        target: What it leads to, such as ``shop.cli:main``.
        place: Its key path in pyproject.toml.
        calls: Whether it must lead to a function, and not only to a module.
    """

    name: str
    target: str
    place: str
    calls: bool


@dataclass(frozen=True)
class Project:
    """A project that a wheel is built from.

    Attributes:
        file: Its pyproject.toml, as messages name it.
        name: The wheel's name; None where the build finds it out.
        entry_points: The wheel's entry points.
        entry_points_known: Whether these are all there are.
        modules: The importable modules and packages at the wheel's top, and where they lie.
        modules_known: Whether these are all there are.
    """

    file: str
    name: str | None = None
    entry_points: tuple[EntryPoint, ...] = ()
    entry_points_known: bool = True
    modules: Mapping[str, Path] = field(default_factory=dict)
    modules_known: bool = True


def normal(name: str) -> str:
    """Return a project's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def module_name(name: str) -> str:
    """Return the name that a project's module and wheel have."""
    return normal(name).replace("-", "_")


def read(folder: Path, shown: str, problems: list[Problem]) -> Project | None:
    """Read a project; None where it can't be read, or has no pyproject.toml.

    Args:
        folder: The project's folder.
        shown: The project's pyproject.toml, as messages name it.
        problems: Gets what is wrong.
    """
    if not is_file(folder / FILE):
        return None
    try:
        data = tomllib.loads((folder / FILE).read_bytes().decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem(shown, "", f"can't be read ({' '.join(str(error).split())})", "fix it there"))
        return None
    project, poetry = _table(data, "project"), _table(data, "tool", "poetry")
    name = project.get("name", poetry.get("name"))
    name = name if isinstance(name, str) and name else None
    dynamic = project.get("dynamic")
    hidden = isinstance(dynamic, list) and bool(
        {"scripts", "entry-points", "gui-scripts"} & {str(x) for x in dynamic}
    )
    missing = [path for path in _declared(data, folder) if not (is_file(path) or is_folder(path))]
    for path in missing:
        what = f"the wheel's package '{path.relative_to(folder).as_posix()}' isn't there"
        problems.append(Problem(shown, "tool.hatch.build.targets.wheel.packages", what, "correct the path"))
    modules, known = _modules(data, folder, name)
    return Project(shown, name, tuple(_entry_points(data)), not hidden, modules, known and not missing)


def _entry_points(data: dict[str, Any]) -> Iterator[EntryPoint]:
    groups = [(f"project.entry-points.{group}", False) for group in _table(data, "project", "entry-points")]
    for table, calls in [
        ("project.scripts", True),
        ("project.gui-scripts", True),
        ("tool.poetry.scripts", True),
        *groups,
    ]:
        for name, target in _table(data, *table.split(".", table.count(".") if calls else 2)).items():
            if isinstance(target, str):
                yield EntryPoint(name, target, f"{table}.{name}", calls)


def _modules(data: dict[str, Any], folder: Path, name: str | None) -> tuple[dict[str, Path], bool]:
    """Return the modules of the wheel, and whether the build backend is one whose rules are known here."""
    module = module_name(name) if name else ""
    backend = str(_table(data, "build-system").get("build-backend", "setuptools.build_meta"))
    backend = re.split("[.:]", backend)[0]
    if backend == "hatchling":
        wheel = _table(data, "tool", "hatch", "build", "targets", "wheel")
        if declared := _declared(data, folder):
            return _named(declared), not ({"force-include", "sources"} & set(wheel))
        usual = [folder / module, folder / "src" / module, folder / f"{module}.py"]
        existing = [path for path in usual if is_file(path) or is_file(path / "__init__.py")][:1]
        if existing and not wheel:
            return _named(existing), True
    elif backend == "uv_build":
        own = _table(data, "tool", "uv", "build-backend")
        root, inside = own.get("module-root", "src"), own.get("module-name", module)
        if isinstance(root, str) and isinstance(inside, str):
            return _named([folder / root / inside]), True
    return _named([*_importable(folder / "src"), *_importable(folder)]), False


def _declared(data: dict[str, Any], folder: Path) -> list[Path]:
    packages = _table(data, "tool", "hatch", "build", "targets", "wheel").get("packages")
    paths = packages if isinstance(packages, list) else []
    return [folder / path for path in paths if isinstance(path, str)]


def _importable(folder: Path) -> Iterator[Path]:
    try:
        inside = sorted(folder.iterdir())
    except (OSError, ValueError):
        return
    for path in inside:
        if path.name.isidentifier() or (path.suffix == ".py" and path.stem.isidentifier()):
            yield path


def _named(paths: list[Path]) -> dict[str, Path]:
    return {
        path.name.removesuffix(".py"): path for path in reversed(paths) if is_file(path) or is_folder(path)
    }


def _table(data: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    value: Any = data
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, dict) else {}
