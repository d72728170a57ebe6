"""Render the files of this repository that come from the template (`make render`).

The root bundle is the template with all routes, the defaults and the repository's package. native/ is the
template for `databricks bundle init`. tests/unit/golden contains the differences that other answers make.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path

from scripts import doctor_page, phase_diagram
from scripts.native import render_native

from tableferry import new

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "unit" / "golden"

# The parts of a generated bundle that the root has; the rest of the root belongs to the package.
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

# The answers to questions that have no default.
REQUIRED = {"route": "all"}

# Answers whose bundles are stored as differences from the default bundle.
PORTRAITS: Mapping[str, Mapping[str, str]] = {
    "classic": {
        "project_name": "tea_shop",
        "catalog": "tea-eu",
        "compute": "classic",
        "ci": "azure",
        "cloud": "azure",
    },
    "pipelines": {"route": "pipelines", "ci": "gitlab"},
    "convert": {"route": "convert", "ci": "none"},
    "fleet": {"route": "fleet", "package": "index", "package_source": "workspace"},
    "fleet_classic": {
        "route": "fleet",
        "compute": "classic",
        "package": "git",
        "package_source": "https://git.tea.example/tableferry.git",
        "ci": "none",
    },
    "index": {
        "package": "index",
        "package_source": "https://pypi.tea.example/simple",
        "compute": "classic",
        "cloud": "gcp",
        "dev_host": "https://dev.tea.example",
        "prod_host": "https://prod.tea.example",
    },
    "vendored": {"package": "vendored", "route": "convert"},
}

# Values that are random in a real bundle and fixed here.
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
    phase_diagram.write()
    doctor_page.write()


def root_bundle(folder: Path) -> Path:
    """Create the bundle of this repository, which uses the repository as the vendored package."""
    made = made_from_template(folder, {"package": "vendored"})
    settings = made / "databricks.yml"
    text = settings.read_text(encoding="utf-8")
    for theirs, ours in {
        "path: ./vendor/tableferry": "path: .",
        "--out-dir ../../libs": "--out-dir libs",
        # The pattern libs/** also matches the folders libs of the templates.
        "sync:\n": "sync:\n  exclude:\n    - src/tableferry/**\n    - template/**\n    - native/**\n",
    }.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    settings.write_text(text, encoding="utf-8")
    return made


def made_from_template(folder: Path, answers: Mapping[str, str]) -> Path:
    """Create a reproducible bundle, with an empty file as its wheel and all routes by default."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / new.wheel_name()
    wheel.touch()
    return new.create(folder, {**REQUIRED, **answers}, no_input=True, wheel=wheel, computed=FIXED)


def render_golden(target: Path) -> None:
    """Recreate a folder with a golden file for each answer."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        defaults = made_from_template(Path(folder, "defaults"), {})
        for name, answers in PORTRAITS.items():
            made = made_from_template(Path(folder, name), answers)
            (target / f"{name}.diff").write_text(golden_file(defaults, made), encoding="utf-8")


def golden_file(defaults: Path, made: Path) -> str:
    """Return the list of a bundle's files, and the differences from the bundle with the default answers."""
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
    """Yield the name and text of each file of a generated bundle, without the package."""
    for path in sorted(made.rglob("*")):
        name = path.relative_to(made).as_posix()
        if path.is_file() and path.suffix != ".whl" and not name.startswith("vendor/"):
            yield name, path.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
