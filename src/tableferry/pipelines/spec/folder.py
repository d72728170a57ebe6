"""Which files a project consists of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tableferry.errors import Problem, SpecError
from tableferry.pipelines.spec.place import Place
from tableferry.pipelines.spec.read import SUFFIXES, name


@dataclass(frozen=True)
class Folder:
    """A project's files.

    Attributes:
        root: What the other paths are shown relative to.
        base: The folder of ``pipeline_configs/``, or None.
        mains: Main files of specs.
        parts: Files with a flow group each.
        alone: Only one spec was asked for, so parts may belong to others.
    """

    root: Path
    base: Path | None
    mains: tuple[Path, ...]
    parts: tuple[Path, ...]
    alone: bool = False

    def place(self, file: Path) -> Place:
        """Name a file as messages do."""
        return Place(name(file, self.root))


@dataclass(frozen=True)
class Beside:
    """The folders in which a spec's own files are looked for.

    Attributes:
        spec: The spec file.
    """

    spec: Path

    @property
    def flow_folder(self) -> Path:
        """The folder that holds ``dataflowspec/``, or the spec's own."""
        for parent in self.spec.parents:
            if parent.name == "dataflowspec":
                return parent.parent
        return self.spec.parent

    def find(
        self, written: str, kind: str, place: Place, problems: list[Problem], *, folder: bool = False
    ) -> Path | None:
        """Resolve a path of the spec, or say where it was looked for.

        Args:
            written: The path as the spec has it.
            kind: The folder of such files, such as ``schemas``.
            place: The key that holds it.
            problems: Gets what is wrong.
            folder: A folder is as good as a file.
        """
        home = self.flow_folder
        for start in (home / kind, home, self.spec.parent):
            path = os.path.abspath(start / written) if "\0" not in written else ""
            if os.path.isfile(path) or (folder and os.path.isdir(path)):
                return Path(path)
        problems.append(place.problem(f"file '{written}' doesn't exist: put it into {home.name}/{kind}/"))
        return None


def locate(project: Path) -> Folder:
    """Find a project's files from its folder or from one spec file.

    Raises:
        SpecError: There is no such project, or there are no specs in it.
    """
    project = Path(os.path.abspath(project))
    if project.is_dir():
        return _from_folder(project)
    if project.is_file():
        return _from_file(project)
    raise SpecError([Problem(str(project), "", "doesn't exist: give a project's folder or a spec file")])


def is_spec(file: Path, ending: str) -> bool:
    """Say whether a file's name ends in ``_main`` or ``_flow`` and a suffix of a spec."""
    return file.suffix in SUFFIXES and file.stem.endswith(ending)


def _from_folder(root: Path) -> Folder:
    base = next((each for each in (root, root / "src") if (each / "dataflows").is_dir()), None)
    files = sorted(_walk(base / "dataflows")) if base else []
    mains = tuple(file for file in files if is_spec(file, "_main"))
    parts = tuple(file for file in files if is_spec(file, "_flow"))
    if not mains and not parts:
        message = (
            "holds no data flow specs: looked for dataflows/**/*_main.json, *_main.yaml and *_main.yml, here "
            "and under src/"
        )
        raise SpecError([Problem(str(root), "", message)])
    return Folder(root, base, mains, parts)


def _from_file(file: Path) -> Folder:
    if file.suffix not in SUFFIXES:
        message = "isn't a spec file: its name must end in .json, .yaml or .yml"
        raise SpecError([Problem(str(file), "", message)])
    if is_spec(file, "_flow"):
        message = "holds a flow group only: give the *_main file of its spec"
        raise SpecError([Problem(str(file), "", message)])
    parts = tuple(each for each in sorted(file.parent.iterdir()) if is_spec(each, "_flow"))
    for base in file.parents:
        if (base / "dataflows").is_dir() or (base / "pipeline_configs").is_dir():
            # As the folder would be given: state paths are relative to it.
            root = base.parent if base.name == "src" else base
            return Folder(root, base, (file,), parts, alone=True)
    return Folder(file.parent, None, (file,), parts, alone=True)


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, each) for each in names)
