"""A check of bundles for what fails at a deployment or in a run, and the CLI's validation lets pass.

Bundles are Declarative Automation Bundles (formerly Databricks Asset Bundles).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from tableferry.bundle import libraries, resources
from tableferry.bundle.findings import Finding, Rule, nearest
from tableferry.bundle.loading import from_cli, from_files, load
from tableferry.bundle.tree import get, items
from tableferry.errors import Refused

__all__ = ["Examination", "Finding", "Rule", "check", "examine"]

_Folder = str | os.PathLike[str]


@dataclass(frozen=True)
class Examination:
    """What was found for some targets: errors are problems; notes say where the CLI was no help, and why."""

    files: tuple[str, ...]
    targets: tuple[str, ...]
    problems: tuple[Finding, ...]
    advice: tuple[Finding, ...]
    notes: tuple[str, ...]


def check(folder: _Folder, target: str | None = None, *, ignore: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return the errors of a bundle, from its files alone: a test needs neither the CLI nor a login."""
    return examine(folder, target, ignore=ignore).problems


def examine(
    folder: _Folder, target: str | None = None, *, ignore: Collection[str] = (), cli: str | None = None
) -> Examination:
    """Check a bundle for one target, or for each of its targets, with all rules but some.

    The Databricks CLI resolves the bundle, if it's given; otherwise, and where it refuses, files are read.
    """
    bundle, files, findings = load(Path(os.path.abspath(folder)))
    readable = all(finding.rule is not Rule.UNREADABLE for finding in findings)
    targets = [str(name) for name, _ in items(get(bundle.tree, "targets"))] or ["default"]
    names = [name for name in targets if readable and target in (None, name)]
    if readable and not names:
        raise Refused(f"{folder} has no target '{target}': {nearest(str(target), targets, 'name another')}")
    findings += resources.check_keys(bundle)
    notes = []
    where: dict[Finding, list[str]] = {}
    for name in names:
        found = from_files(bundle, name)
        try:
            found = from_cli(found, name, cli) if cli else found
        except ValueError as error:
            notes.append(f"the Databricks CLI refused target '{name}', so its files were read ({error})")
        if not found.tree:
            notes.append(f"code changes target '{name}', so only the Databricks CLI knows its resources")
        for finding in {*resources.check(found, date.today()), *libraries.check(found)}:
            where.setdefault(finding, []).append(name)
    for finding, several in where.items():
        only = "" if len(several) == len(names) else f" (only in {' and '.join(several)})"
        findings.append(replace(finding, message=finding.message + only))
    left = sorted(finding for finding in findings if finding.rule not in ignore or not readable)
    errors = tuple(finding for finding in left if finding.level == "error")
    advice = tuple(finding for finding in left if finding.level != "error")
    return Examination(tuple(files), tuple(names), errors, advice, tuple(notes))
