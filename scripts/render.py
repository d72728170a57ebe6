"""Renders what is made of the template and kept in this repository; `make render` runs it.

The root bundle is the template with its defaults and the repository's own package; native/ is its twin for
`databricks bundle init`; tests/unit/golden shows what other answers change. Whoever changes the template
renders anew; a test says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path

from scripts.native import render_native

from tableferry import new

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "unit" / "golden"

# What the root bundle and a generated one have in common; the rest of the root belongs to the package.
SHARED = (
    "databricks.yml",
    "libs",
    "resources",
    "src/fleet",
    "src/migration",
    "src/pipelines",
    "src/orders",
    "src/sample",
)

# Answers whose effect is kept as a difference from the defaults.
PORTRAITS: Mapping[str, Mapping[str, str]] = {
    "classic": {"project_name": "tea_shop", "catalog": "tea-eu", "compute": "classic", "ci": "azure"},
    "pipelines": {"route": "pipelines", "ci": "gitlab"},
    "convert": {"route": "convert", "ci": "none"},
    "fleet": {"route": "fleet", "package": "index"},
    "fleet_classic": {
        "route": "fleet",
        "compute": "classic",
        "package": "git",
        "package_source": "https://git.tea.example/tableferry.git",
        "ci": "none",
    },
    "index": {"package": "index", "package_source": "https://pypi.tea.example/simple", "compute": "classic"},
    "vendored": {"package": "vendored", "route": "convert"},
}

# What is the same whenever it is rendered.
FIXED = {"__uuid": "6f3a0d4e-52c1-4b0b-9d5e-8a1f2c7b9e60"}


def main() -> None:
    """Render everything."""
    with tempfile.TemporaryDirectory() as folder:
        made = root_bundle(Path(folder))
        for name in SHARED:
            there = ROOT / name
            if there.is_dir():
                shutil.rmtree(there)
                shutil.copytree(made / name, there)
            else:
                there.unlink(missing_ok=True)
                shutil.move(made / name, there)
    render_native(ROOT / "native")
    render_golden(GOLDEN)


def root_bundle(folder: Path) -> Path:
    """Make the bundle of this repository: the vendored package is the repository's own."""
    made = made_from_template(folder, {"package": "vendored"})
    settings = made / "databricks.yml"
    text = settings.read_text(encoding="utf-8")
    for theirs, ours in {
        "path: ./vendor/tableferry": "path: .",
        "--out-dir ../../libs": "--out-dir libs",
        "sync:\n": "sync:\n  exclude:\n    - src/tableferry/**\n",
    }.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    settings.write_text(text, encoding="utf-8")
    return made


def made_from_template(folder: Path, answers: Mapping[str, str]) -> Path:
    """Make a bundle that is the same each time, with an empty file as its wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / new.wheel_name()
    wheel.touch()
    return new.create(folder, answers, no_input=True, wheel=wheel, computed=FIXED)


def render_golden(target: Path) -> None:
    """Write a golden file of each answer into a folder, which is made anew."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        defaults = made_from_template(Path(folder, "defaults"), {})
        for name, answers in PORTRAITS.items():
            made = made_from_template(Path(folder, name), answers)
            (target / f"{name}.diff").write_text(golden_file(defaults, made), encoding="utf-8")


def golden_file(defaults: Path, made: Path) -> str:
    """List a bundle's files, and show how they differ from those of the bundle with the default answers."""
    before, after = (dict(own_files(folder)) for folder in (defaults, made))
    lines = [f"{name}\n" for name in sorted(after)]
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        old, new = (files.get(name, "").splitlines(keepends=True) for files in (before, after))
        gone, added = name not in after, name not in before
        lines += ["\n", f"--- {'' if added else name}\n", f"+++ {'' if gone else name}\n"]
        lines += [] if gone else list(unified_diff(old, new, n=1))[2:]
    return "".join(lines)


def own_files(made: Path) -> Iterator[tuple[str, str]]:
    """Give the files of a generated bundle, without the package in it, as text by name."""
    for path in sorted(made.rglob("*")):
        name = path.relative_to(made).as_posix()
        if path.is_file() and path.suffix != ".whl" and not name.startswith("vendor/"):
            yield name, path.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
