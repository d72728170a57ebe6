"""A bundle as it will be deployed to a target: read from its files, or told by the Databricks CLI."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tableferry.bundle.findings import Finding, Rule
from tableferry.bundle.tree import Text, find, get, items, known, merge, parse, resolve

_ROOTS = ("databricks.yml", "databricks.yaml", "bundle.yml", "bundle.yaml")
_DEFINITION = {"default", "lookup", "type", "description"}
_FILE_PATH = "${workspace.file_path}"
# Elsewhere, an option, a requirement, or not known.
_NOT_LOCAL = re.compile(r"[/~-]|[A-Za-z][A-Za-z0-9+.-]*:|.*(\$\{|[\s@])")
_EXTRAS = re.compile(r"(?<=\.whl)\[[^\]]*\]$")


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds, for one target or as it's written.

    Attributes:
        synchronised: The folder that is synchronised: the bundle's, or one above that ``sync.paths`` names.
        file_path: The path of that folder in the workspace.
        complete: Whether no resource comes from code that wasn't run.
    """

    folder: Path
    tree: Any
    synchronised: Path
    file_path: str = _FILE_PATH
    complete: bool = True

    def resources(self, kind: str) -> list[tuple[Text, Any]]:
        """Return the resources of a kind by their places, which know where they are written."""
        several = items(get(self.tree, "resources", kind))
        return [(Text(f"resources.{kind}.{name}", name.file, name.line), item) for name, item in several]

    def path(self, text: Text) -> Path:
        """Return the file or pattern that a path means, which is relative to the file it's written in."""
        return Path(os.path.normpath((Path(text.file).parent if text.file else self.synchronised) / text))

    def local(self, text: Any) -> Path | None:
        """Return the path or pattern here that a text means, without a wheel's extras, or None."""
        path = Text(_EXTRAS.sub("", text), text.file) if isinstance(text, Text) else Text("/")
        inside = path.removeprefix(f"{self.file_path}/")
        if inside != path and "${" not in inside:
            return self.path(Text(str(self.synchronised / inside)))
        return None if _NOT_LOCAL.match(path) else self.path(path)

    def shown(self, path: str | Path) -> str:
        """Return a path as messages name it: from the bundle's folder."""
        return os.path.relpath(path, self.folder).replace(os.sep, "/") if path else ""

    def finding(self, rule: Rule, location: Text, message: str, at: Text, level: str = "error") -> Finding:
        """Return a finding at a text, or where the CLI said that text, at its resource."""
        at = at if at.file else location
        return Finding(self.shown(at.file), at.line, str(location), message, rule, level)


def matches(pattern: Path) -> list[Path]:
    """Return the files and folders that a path or pattern leads to."""
    try:
        return [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]
    except (OSError, ValueError, re.error):
        return []


def load(folder: Path) -> tuple[Bundle, list[str], list[Finding]]:
    """Read a bundle's files; the findings say which ones can't be read."""
    bundle = Bundle(folder, None, folder)
    findings: list[Finding] = []
    files = [folder / name for name in _ROOTS if (folder / name).is_file()][:1] or [folder / _ROOTS[0]]
    tree = _read(bundle, files[0], findings)
    for pattern in filter(None, map(known, find(tree, "include.*"))):
        included = matches(folder / pattern.replace("**", "*"))  # which are one star to the CLI
        if not included and not get(tree, "python"):
            message = f"'{pattern}' matches no file: correct it, or remove it if nothing is meant"
            findings.append(bundle.finding(Rule.EMPTY_GLOB, Text("include"), message, pattern, "advice"))
        for file in included:
            if file not in files and file.suffix in (".yml", ".yaml", ".json"):
                files.append(file)
                tree = merge(tree, _read(bundle, file, findings))
    return replace(bundle, tree=tree), list(map(bundle.shown, files)), findings


def from_files(bundle: Bundle, target: str) -> Bundle:
    """Lay a target over what is written for all, and resolve what the files know."""
    own = get(bundle.tree, "targets", target)
    tree = {key: item for key, item in items(bundle.tree) if key not in ("targets", "include")}
    for key in ("bundle", "resources", "artifacts", "sync"):
        tree[Text(key)] = merge(get(tree, key), get(own, key))
    settings = merge(get(tree, "bundle"), {Text("target"): Text(target)})
    tree = resolve(tree, {"var": _variables(bundle, target), "bundle": settings})
    for _, job in items(get(tree, "resources", "jobs")):
        # Tasks of one key are one task, so that a target can change a part of it.
        tasks: dict[Any, Any] = {}
        for position, task in enumerate(find(job, "tasks.*")):
            key = str(get(task, "task_key") or f"#{position}")
            tasks[key] = merge(tasks.get(key), task)
        if tasks:
            job["tasks"] = list(tasks.values())
    paths = [bundle.path(path) for path in map(known, find(tree, "sync.paths.*")) if path]
    synchronised = Path(os.path.commonpath([bundle.folder, *paths]))
    experimental = get(tree, "experimental")
    python = [get(tree, "python"), get(experimental, "python"), get(experimental, "pydabs")]
    if get(experimental, "scripts", "preinit") or any(get(code, "mutators") for code in python):
        tree = {}  # code may change all of it
    return replace(bundle, tree=tree, synchronised=synchronised, complete=not any(python))


def from_cli(bundle: Bundle, target: str, cli: str) -> Bundle:
    """Return the same as the CLI resolves it; fails with a ValueError that says why it refuses."""
    command = [cli, "bundle", "validate", "--output", "json", "--target", target]
    settings: Any = {"cwd": bundle.folder, "capture_output": True, "text": True, "timeout": 120}
    try:
        tree = parse(subprocess.run(command, check=True, **settings).stdout, "")
    except (OSError, subprocess.SubprocessError) as error:
        told = re.search("Error: .*", str(getattr(error, "stderr", "")))
        raise ValueError(told[0] if told else str(error)) from None
    for kind, resources in items(get(tree, "resources")):
        # Its keys don't say where they are written; the files' do.
        written = {key: key for key, _ in items(get(bundle.tree, "resources", kind))}
        tree["resources"][kind] = {written.get(key, Text(key)): item for key, item in items(resources)}
    remote = get(tree, "workspace", "file_path") or _FILE_PATH
    return replace(bundle, tree=tree, file_path=remote, complete=True)


def _read(bundle: Bundle, file: Path, findings: list[Finding]) -> Any:
    try:
        return parse(file.read_text("utf-8-sig"), str(file))
    except (OSError, ValueError, RecursionError) as error:
        message = f"can't be read ({error}): correct it, or name the folder of a bundle"
        findings.append(bundle.finding(Rule.UNREADABLE, Text(""), message, Text("", str(file))))
        return None


def _variables(bundle: Bundle, target: str) -> dict[str, Any]:
    """Return the values of variables; not of those that the CLI looks up, or that a file may override."""
    if matches(bundle.folder / ".databricks" / "bundle" / target / "variable-overrides.json"):
        return {}
    values: dict[str, Any] = {}
    for name, definition in items(get(bundle.tree, "variables")):
        own = get(bundle.tree, "targets", target, "variables", name)
        if own is not None and not (isinstance(own, dict) and own.keys() <= _DEFINITION):
            own = {"default": own}
        value, outside = get(own, "default"), os.environ.get(f"BUNDLE_VAR_{name}")
        if value is None and not get(own, "lookup") and not get(definition, "lookup"):
            value = get(definition, "default")
        values[name] = value if outside is None else Text(outside)
    return values
