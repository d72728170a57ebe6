"""Add the package to the new project, and remove files that belong to other answers.

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
# Building the package needs only the lines of pyproject.toml above this one.
END = "# The settings below are for this repository only."


def repository() -> Path:
    """Return the repository that contains the template."""
    # The template's path may be relative to the caller's folder, which isn't the working directory here.
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
    """Build the package's wheel into libs, or copy a given one."""
    if ANSWERS["_wheel"]:
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
        # In the repository, because the new project's settings of uv name libs, which has no wheel yet.
        built = subprocess.run(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if built.returncode:
            sys.exit(f"The wheel can't be built by {' '.join(command)}:\n{built.stdout}")
        # uv's note would keep the wheel out of the project's repository.
        Path("libs", ".gitignore").unlink(missing_ok=True)
    wheels = [path.name for path in Path("libs").glob("*.whl")]
    if wheels != [WHEEL]:
        sys.exit(
            f"libs must contain {WHEEL}, and contains {' and '.join(wheels)}: use that version's template."
        )


def put_source() -> None:
    """Copy the package's source and its build settings into vendor."""
    home, target = repository(), Path("vendor/tableferry")
    compiled = shutil.ignore_patterns("__pycache__", "*.py[co]")
    shutil.copytree(home / "src/tableferry", target / "src/tableferry", ignore=compiled)
    for name in ("LICENSE", "README.md"):
        shutil.copy(home / name, target)
    project = (home / "pyproject.toml").read_text(encoding="utf-8").partition(END)[0]
    (target / "pyproject.toml").write_text(project.rstrip() + "\n", encoding="utf-8")
    # The first deployment builds the wheel into this folder, which must exist.
    Path("libs").mkdir(exist_ok=True)
    Path("libs/.gitignore").write_text("# The wheel is built here when the bundle is deployed.\n*.whl\n")


def remove_files_of_other_answers() -> None:
    """Remove the files that belong to other answers, and modules that pip compiled in the template."""
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
    remove_files_of_other_answers()
except OSError as error:
    sys.exit(f"{error.filename} can't be written or read ({error.strerror}): fix that, and try again.")
