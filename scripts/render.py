"""Renders what is made of the template and kept in this repository; `make render` runs it.

The root bundle is the template with its defaults. Whoever changes the template renders anew; a test says so.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tableferry import new

ROOT = Path(__file__).parents[1]

# What the root bundle and a generated one have in common; the rest of the root belongs to the package.
SHARED = ("databricks.yml", "resources", "src/pipelines", "src/orders", "src/sample")


def render_root() -> None:
    """Put the template, rendered with its defaults, into the root."""
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


if __name__ == "__main__":
    render_root()
