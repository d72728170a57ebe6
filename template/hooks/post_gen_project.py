"""Takes out of the new project what wasn't chosen, and puts the package into it.

Runs in the project's folder; cookiecutter removes the project if this fails.
"""

import json
import os
import shutil
import sys
from pathlib import Path

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")


def remove_what_was_not_chosen() -> None:
    """Remove the files that belong to other answers, and what pip compiled when it installed the template."""
    for compiled in list(Path().rglob("__pycache__")):
        shutil.rmtree(compiled)
    for each in ANSWERS["_only_with"]:
        if ANSWERS[each["question"]] in each["answers"]:
            continue
        for path in [path for pattern in each["files"] for path in Path().glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def package() -> Path:
    """Find the folder of the package: given, or in the repository that the template lies in."""
    if given := ANSWERS["_package"]:
        return Path(given)
    # A template that was named by a relative path is told as such, and this isn't the caller's folder.
    callers = (os.environ.get("PWD", ""), ANSWERS["_output_dir"])
    homes = [Path(caller, ANSWERS["_repo_dir"]).parent for caller in callers]
    found = next((home for home in homes if (home / "src/tableferry/__init__.py").is_file()), None)
    if found is None:
        sys.exit(
            f"There is no src/tableferry beside the template {ANSWERS['_repo_dir']}: name the whole "
            "repository, by its absolute path or its URL, with --directory template."
        )
    return found / "src/tableferry"


def put_package(source: Path) -> None:
    """Copy the package, with its licence, into the project."""
    target = Path("src/tableferry")
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.py[co]", "template"))
    if not (target / "LICENSE").exists():
        shutil.copyfile(source.parent.parent / "LICENSE", target / "LICENSE")


try:
    remove_what_was_not_chosen()
    put_package(package())
except OSError as error:
    sys.exit(f"{error.filename} can't be written or read ({error.strerror}): fix that, and try again.")
