"""Which files a project consists of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tableferry.errors import Finding, Problem, SpecError
from tableferry.pipelines.specs.read import SUFFIXES, entries, name, unlisted
from tableferry.pipelines.specs.source_location import SourceLocation


@dataclass(frozen=True)
class Folder:
    """A project's files.

    Attributes:
        root: What the other paths are shown relative to.
        base: The folder of ``pipeline_configs/``, or None.
        parts: Files with a flow group each.
        alone: Only one spec was asked for, so parts may belong to others.
        others: Main files of the specs that weren't asked for.
    """

    root: Path
    base: Path | None
    mains: tuple[Path, ...]
    parts: tuple[Path, ...]
    alone: bool = False
    others: tuple[Path, ...] = ()

    def location(self, file: Path) -> SourceLocation:
        """Name a file as messages do."""
        return SourceLocation(name(file, self.root))


def find(
    spec: Path,
    written: str,
    kind: str,
    location: SourceLocation,
    problems: list[Problem],
    *,
    folder: bool = False,
) -> Path | None:
    """Resolve a path that a spec file gives, or say where it was looked for.

    ``kind`` is the folder of such files, such as ``schemas``; with ``folder`` a folder is as good as a file.
    """
    home = next((parent.parent for parent in spec.parents if parent.name == "dataflowspec"), spec.parent)
    for start in (home / kind, home, spec.parent, *(_shared(spec) if kind == "python_functions" else ())):
        path = os.path.abspath(start / written) if "\0" not in written else ""
        if os.path.isfile(path) or (folder and os.path.isdir(path)):
            return Path(path)
    missing = Finding("SPEC_REFERENCED_FILE_MISSING", file=written, folder=f"{home.name}/{kind}")
    problems.append(location.problem(missing))
    return None


def _shared(spec: Path) -> tuple[Path, ...]:
    """Return where functions of all specs are: those of templates, and the bundle's own."""
    base = _base(spec)
    return (base / "templates" / "python_functions", *modules(spec)) if base else ()


def modules(spec: Path) -> tuple[Path, ...]:
    """Return the folders of a bundle that hold modules of its own."""
    base = _base(spec)
    return tuple(base / folder for folder in ("python", "libraries", "extensions")) if base else ()


def _base(spec: Path) -> Path | None:
    return next((parent.parent for parent in spec.parents if parent.name == "dataflows"), None)


def locate(project: Path, problems: list[Problem]) -> Folder:
    """Find a project's files from its folder or from one spec file.

    Raises:
        SpecError: There is no such project, or there are no specs in it.
    """
    project = Path(os.path.abspath(project))
    if os.path.isdir(project):
        return _from_folder(project, problems)
    if os.path.isfile(project):
        return _from_file(project, problems)
    finding = Finding("SPEC_PROJECT_MISSING")
    try:
        os.stat(project)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        finding = unlisted(error)
    raise _refused(project, finding)


def _refused(path: Path, finding: Finding) -> SpecError:
    return SpecError("INVALID_SPEC", problems=[Problem.of(finding, str(path), "")])


def is_spec(file: Path, ending: str) -> bool:
    """Say whether a file's name ends in ``_main`` or ``_flow`` and a suffix of a spec."""
    return file.suffix in SUFFIXES and file.stem.endswith(ending)


def _from_folder(root: Path, problems: list[Problem]) -> Folder:
    base = next((folder for folder in (root, root / "src") if os.path.isdir(folder / "dataflows")), None)
    unseen: list[Problem] = []
    files = _walk(base / "dataflows", root, unseen) if base else []
    mains = tuple(file for file in files if is_spec(file, "_main"))
    parts = tuple(file for file in files if is_spec(file, "_flow"))
    if not mains and not parts:
        if unseen:
            raise SpecError("INVALID_SPEC", problems=unseen)
        raise _refused(root, Finding("SPEC_PROJECT_EMPTY"))
    problems.extend(unseen)
    return Folder(root, base, mains, parts)


def _from_file(file: Path, problems: list[Problem]) -> Folder:
    if file.suffix not in SUFFIXES:
        raise _refused(file, Finding("SPEC_FILE_SUFFIX"))
    if is_spec(file, "_flow"):
        raise _refused(file, Finding("SPEC_FILE_IS_FLOW_GROUP"))
    root, base = file.parent, None
    for parent in file.parents:
        if os.path.isdir(parent / "dataflows") or os.path.lexists(parent / "pipeline_configs"):
            # As the folder would be given: state paths are relative to it.
            root, base = (parent.parent if parent.name == "src" else parent), parent
            break
    if base is not None and file.is_relative_to(base / "dataflows"):
        files = _walk(base / "dataflows", root, problems)
    else:
        # Whatever else lies below the folder of a file on its own is no part of a project.
        files = entries(file.parent, SourceLocation(name(file.parent, root)), problems) or []
    parts = tuple(part for part in files if is_spec(part, "_flow"))
    others = tuple(main for main in files if is_spec(main, "_main") and main != file)
    return Folder(root, base, (file,), parts, alone=True, others=others)


def _walk(folder: Path, root: Path, problems: list[Problem]) -> list[Path]:
    """List the files below a folder, in order and each once, those behind links to folders included."""

    def report(error: OSError) -> None:
        problems.append(SourceLocation(name(Path(error.filename), root)).problem(unlisted(error)))

    files: list[Path] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=report, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        files.extend(Path(parent, file) for file in names)
    return sorted(files)
