"""Puts the package into the new project, and takes out what wasn't chosen.

Runs in the project's folder; cookiecutter removes the project if this fails.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")
WHEEL = f"tableferry-{ANSWERS['__tableferry_version']}-py3-none-any.whl"
# What stands above this line of pyproject.toml is all that building the package needs.
END = "# The settings below are for this repository only."


def repository() -> Path:
    """Find the repository that the template lies in."""
    # A template that was named by a relative path is passed on as such, and this isn't the caller's folder.
    callers = (os.environ.get("PWD", ""), ANSWERS["_output_dir"])
    homes = [Path(caller, ANSWERS["_repo_dir"]).parent for caller in callers]
    home = next((home for home in homes if (home / "src/tableferry/__init__.py").is_file()), None)
    if home is None:
        sys.exit(
            f"There is no src/tableferry beside the template {ANSWERS['_repo_dir']}: name the whole "
            "repository, by its absolute path or its URL, with --directory template; or answer package=index "
            "or package=git."
        )
    return home


def put_wheel() -> None:
    """Build the package's wheel into libs, unless there is one to take."""
    if ANSWERS["_wheel"]:
        Path("libs").mkdir()
        shutil.copy(ANSWERS["_wheel"], "libs")
    else:
        home, libs = str(repository().resolve()), str(Path("libs").resolve())
        if shutil.which("uv"):
            command = ["uv", "build", "--quiet", "--wheel", "--out-dir", libs, home]
        elif importlib.util.find_spec("pip"):
            command = [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                "--quiet",
                "--no-deps",
                "--wheel-dir",
                libs,
                home,
            ]
        else:
            sys.exit("Building the wheel needs uv or pip: install uv, and try again.")
        # In the repository, for uv would take the settings of the new project, where nothing is in libs yet.
        built = subprocess.run(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if built.returncode:
            sys.exit(f"The wheel can't be built by {' '.join(command)}:\n{built.stdout}")
        # So that no tool's own note keeps the wheel out of the repository.
        Path("libs", ".gitignore").unlink(missing_ok=True)
    wheels = [path.name for path in Path("libs").iterdir()]
    if wheels != [WHEEL]:
        sys.exit(
            f"libs must hold {WHEEL}, and holds {' and '.join(wheels)}: take the template of that version."
        )


def put_source() -> None:
    """Copy the package's source, and what it is built with, into vendor."""
    home, target = repository(), Path("vendor/tableferry")
    compiled = shutil.ignore_patterns("__pycache__", "*.py[co]")
    shutil.copytree(home / "src/tableferry", target / "src/tableferry", ignore=compiled)
    for name in ("LICENSE", "README.md"):
        shutil.copy(home / name, target)
    project = (home / "pyproject.toml").read_text(encoding="utf-8").partition(END)[0]
    (target / "pyproject.toml").write_text(project.rstrip() + "\n", encoding="utf-8")
    # The folder must be there before the first deployment builds the wheel into it.
    Path("libs").mkdir()
    Path("libs/.gitignore").write_text("# The wheel is built here when the bundle is deployed.\n*.whl\n")


def remove_what_was_not_chosen() -> None:
    """Remove the files that belong to other answers, and what pip compiled when it installed the template."""
    for compiled in list(Path().rglob("__pycache__")):
        shutil.rmtree(compiled)
    for rule in ANSWERS["_only_with"]:
        if ANSWERS[rule["question"]] in rule["answers"]:
            continue
        for path in [path for pattern in rule["files"] for path in Path().glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for folder in sorted(filter(Path.is_dir, Path().rglob("*")), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


try:
    if ANSWERS["package"] == "wheel":
        put_wheel()
    elif ANSWERS["package"] == "vendored":
        put_source()
    remove_what_was_not_chosen()
except OSError as error:
    sys.exit(f"{error.filename} can't be written or read ({error.strerror}): fix that, and try again.")
