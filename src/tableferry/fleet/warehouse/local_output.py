"""A file of this machine for pyiceberg to write: its own way to one needs Arrow."""

from __future__ import annotations

import os
from typing import BinaryIO

from pyiceberg.io import InputFile, OutputFile


class LocalOutput(OutputFile):
    """A file that isn't there yet, by its path."""

    def __len__(self) -> int:
        """Return its bytes."""
        return os.path.getsize(self.location)

    def exists(self) -> bool:
        """Say whether it's there."""
        return os.path.exists(self.location)

    def to_input_file(self) -> InputFile:
        """Read it: nobody does."""
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> BinaryIO:
        """Open it for writing."""
        return open(self.location, "wb" if overwrite else "xb")
