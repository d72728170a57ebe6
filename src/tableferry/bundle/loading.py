"""A bundle's files: databricks.yml and what it includes, as one tree."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tableferry.bundle.merging import merge
from tableferry.bundle.problems import Problem
from tableferry.bundle.reading import read
from tableferry.bundle.tree import Node, SourceLocation

ROOT_NAMES = ("databricks.yml", "databricks.yaml", "bundle.yml", "bundle.yaml")
_SUFFIXES = (".yml", ".yaml", ".json")


@dataclass(frozen=True)
class Sources:
    """What a bundle's files hold.

    Attributes:
        folder: The bundle's folder.
        tree: All files as one.
        files: The files, relative to the folder, in the order in which they are read.
    """

    folder: Path
    tree: Node
    files: tuple[str, ...] = ()


def load(folder: Path, problems: list[Problem]) -> Sources:
    """Read a bundle's files; where something is wrong in them, the tree is incomplete."""
    names = [name for name in ROOT_NAMES if (folder / name).is_file()]
    empty = Node({}, SourceLocation(ROOT_NAMES[0]))
    if not names:
        problems.append(empty.problem(f"isn't in {folder}", "name the folder of a bundle"))
        return Sources(folder, empty)
    if len(names) > 1:
        problems.append(
            empty.problem(f"isn't the only root: {names[1]} is one too", f"keep {names[0]} alone")
        )
    tree = read(folder / names[0], names[0], problems)
    files = [names[0]]
    for name, file in _included(folder, tree["include"], problems):
        if name in files:
            continue
        files.append(name)
        included = read(file, name, problems)
        if included["include"].given:
            problems.append(
                included["include"].problem(
                    "isn't read here", f"move it to {names[0]}, the only file whose includes count"
                )
            )
        _refuse_twice(tree, included, problems)
        own = {key: item for key, item in included.items if key != "include"}
        tree = merge(tree, included.with_value(own), problems)
    _refuse_shared_keys(tree, problems)
    return Sources(folder, tree, tuple(files))


def _included(folder: Path, include: Node, problems: list[Problem]) -> Iterator[tuple[str, Path]]:
    for pattern in include.elements:
        if pattern.text is None:
            problems.append(
                pattern.problem(f"must be a path, not {pattern.kind}", "write a path or a pattern")
            )
        elif Path(pattern.text).is_absolute():
            problems.append(
                pattern.problem("is an absolute path", "write it relative to the bundle's folder")
            )
        elif not (paths := _matches(folder, pattern.text)):
            problems.append(
                pattern.problem(
                    f"'{pattern.text}' matches no file",
                    "correct the pattern, or remove it if nothing is meant",
                )
            )
        else:
            for path in paths:
                name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
                if path.suffix in _SUFFIXES:
                    yield name, path
                else:
                    problems.append(
                        pattern.problem(
                            f"includes {name}, which isn't YAML", "include .yml, .yaml or .json files only"
                        )
                    )


def _matches(folder: Path, pattern: str) -> list[Path]:
    """Find files as the CLI does: `**` means no more than `*`."""
    try:
        names = glob.glob(pattern.replace("**", "*"), root_dir=folder, include_hidden=True)
    except (OSError, ValueError):
        return []
    return sorted(path for name in names if (path := folder / name).is_file())


def _refuse_twice(tree: Node, included: Node, problems: list[Problem]) -> None:
    """Refuse a resource that two files define, which the CLI takes for two of the same key."""
    for kind, resources in included["resources"].items:
        for name, resource in resources.items:
            if (first := tree["resources"][kind][name]).given:
                problems.append(_same_key(resource, name, first))


def _refuse_shared_keys(tree: Node, problems: list[Problem]) -> None:
    """Refuse a key that resources of two kinds, or a script, have."""
    owners: dict[str, Node] = {}
    scripts = [tree["scripts"]]
    for group in [*(resources for _, resources in tree["resources"].items), *scripts]:
        for name, owner in group.items:
            if owners.setdefault(name, owner) is not owner:
                problems.append(_same_key(owner, name, owners[name]))


def _same_key(resource: Node, name: str, first: Node) -> Problem:
    return resource.problem(
        f"has the key '{name}', which {first.place.full} has too", "give each resource a key of its own"
    )
