from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file passes its own test.
REGISTRIES = [
    "pypi." + "org",
    "pythonhosted." + "org",
    "repo1.maven." + "org",
    "repo.maven.apache." + "org",
    "registry." + "npmjs",
    "artifact" + "ory",
]


def kept() -> list[Path]:
    """Every file that git keeps or would keep; in an unpacked archive, every file that isn't a run's."""
    try:
        asked = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        made = {".venv", ".tableferry", "__pycache__"}
        return [
            path
            for path in ROOT.rglob("*")
            if path.is_file()
            and not any(part in made or part.endswith("_cache") for part in path.relative_to(ROOT).parts)
        ]
    return [path for name in asked.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_jar_and_no_lock_file_is_kept() -> None:
    assert [path for path in kept() if path.suffix == ".jar" or path.name == "uv.lock"] == []


def test_no_file_names_a_registry() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in kept()
        for host in REGISTRIES
        if host in path.read_bytes().decode(errors="ignore")
    ]
    assert named == []


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-connect.txt", "constraints-docs.txt"])
def test_constraints_pin_exact_versions(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .+)?", line)] == []


def test_the_readme_names_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = re.findall(r"```.*?```|`[^`\n]+`", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    named = {name for part in code for name in re.findall(r"(?:^|[`\s=])make ([a-z-]+)", part, re.MULTILINE)}
    assert named
    assert named - targets == set()
