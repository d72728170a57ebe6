"""Renders what is made of the template and kept in this repository; `make render` runs it.

The root bundle is the template with its defaults; native/ is its twin for `databricks bundle init`;
tests/unit/golden shows what other answers change. Whoever changes the template renders anew; a test says so.
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
SHARED = ("databricks.yml", "resources", "src/fleet", "src/pipelines", "src/orders", "src/sample")

# Answers whose effect is kept as a difference from the defaults.
PORTRAITS: Mapping[str, Mapping[str, str]] = {
    "classic_yaml": {
        "project_name": "Tea shop",
        "catalog": "tea",
        "schema": "silver",
        "spec_format": "yaml",
        "compute": "classic",
        "notifications": "data@tea.example",
    },
    "bare": {"include_tests": "no", "include_ci": "no"},
    "pipelines": {"route": "pipelines"},
    "convert": {"route": "convert"},
    "fleet": {"route": "fleet"},
    "fleet_classic": {
        "route": "fleet",
        "compute": "classic",
        "fleet_format": "iceberg",
        "fleet_store": "postgresql://tableferry@db.tea.example/fleet?sslmode=require",
        "include_tests": "no",
        "include_ci": "no",
    },
    "convert_bare": {"route": "convert", "compute": "classic", "include_tests": "no", "include_ci": "no"},
}


def main() -> None:
    """Render everything."""
    with tempfile.TemporaryDirectory() as folder:
        made = new.create(Path(folder), no_input=True)
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


def render_golden(target: Path) -> None:
    """Write a golden file of each answer into a folder, which is made anew."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        defaults = new.create(Path(folder, "defaults"), no_input=True)
        for name, answers in PORTRAITS.items():
            made = new.create(Path(folder, name), answers, no_input=True)
            (target / f"{name}.diff").write_text(golden_file(defaults, made), encoding="utf-8")


def golden_file(defaults: Path, made: Path) -> str:
    """List a bundle's files, and show how they differ from those of the bundle with the default answers."""
    before, after = (dict(own_files(folder)) for folder in (defaults, made))
    lines = [f"{name}\n" for name in sorted(after)]
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        old, new = (found.get(name, "").splitlines(keepends=True) for found in (before, after))
        gone, added = name not in after, name not in before
        lines += ["\n", f"--- {'' if added else name}\n", f"+++ {'' if gone else name}\n"]
        lines += [] if gone else list(unified_diff(old, new, n=1))[2:]
    return "".join(lines)


def own_files(made: Path) -> Iterator[tuple[str, str]]:
    """Give the files of a generated bundle, without the package in it, as text by name."""
    for path in sorted(made.rglob("*")):
        name = path.relative_to(made).as_posix()
        if path.is_file() and not name.startswith("src/tableferry/"):
            yield name, path.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
