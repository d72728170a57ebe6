"""A bundle on disk that is all right, for tests to spoil."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tableferry import bundle

EXAMPLE = Path(__file__).parent / "bundle_example"

ROOT = "databricks.yml"
JOB = "resources/nightly.job.yml"
PIPELINE = "resources/etl.pipeline.yml"
SCHEMA = "resources/shop.schema.yml"
PROJECT = "pyproject.toml"
MODULE = "src/shop/cli.py"


@dataclass(frozen=True)
class BundleFiles:
    """A copy of the example.

    Attributes:
        root: Its folder.
    """

    root: Path

    @classmethod
    def copy_to(cls, folder: Path) -> BundleFiles:
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        return cls(folder)

    def replace(self, file: str, old: str, new: str) -> BundleFiles:
        """Write something else in one place of a file."""
        text = (self.root / file).read_text("utf-8")
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        (self.root / file).write_text(text.replace(old, new), "utf-8")
        return self

    def write(self, file: str, text: str) -> BundleFiles:
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        (self.root / file).write_text(text, "utf-8")
        return self

    def findings(self, cli: str | None = None) -> list[str]:
        examination = bundle.examine(self.root, cli=cli)
        return [str(finding) for finding in (*examination.problems, *examination.advice)]
