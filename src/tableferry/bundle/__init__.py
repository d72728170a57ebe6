"""A check of bundles for what the Databricks CLI finds out late or never, without a workspace or the CLI.

Bundles are Declarative Automation Bundles (formerly Databricks Asset Bundles).
"""

from __future__ import annotations

import os
import warnings

from tableferry.bundle.checking import Examination, examine
from tableferry.bundle.problems import Problem

__all__ = ["Examination", "Problem", "check", "examine"]


def check(folder: str | os.PathLike[str], target: str | None = None) -> tuple[Problem, ...]:
    """Return everything that is wrong with a bundle; warns where a part of the check can't be done.

    Args:
        folder: The folder with databricks.yml.
        target: The only target to look at; all of them by default.
    """
    examination = examine(folder, target)
    for note in examination.notes:
        warnings.warn(note, stacklevel=2)
    return examination.problems
