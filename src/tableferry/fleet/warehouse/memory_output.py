"""A file for pyiceberg to write that somebody else puts where it belongs: its own ways there need Arrow."""

from __future__ import annotations

from io import BytesIO
from typing import BinaryIO

from pyiceberg.io import InputFile, OutputFile


class MemoryOutput(OutputFile):
    """A file in memory, by the path that it will have."""

    def __init__(self, location: str) -> None:
        """Begin without a byte."""
        super().__init__(location)
        self.content = b""

    def __len__(self) -> int:
        """Return its bytes."""
        return len(self.content)

    def exists(self) -> bool:
        """Say whether it was written."""
        return bool(self.content)

    def to_input_file(self) -> InputFile:
        """Read it: nobody does."""
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> BinaryIO:
        """Open it for writing."""
        return _Kept(self)


class _Kept(BytesIO):
    """What is written, which is left behind when it's closed."""

    def __init__(self, output: MemoryOutput) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        if not self.closed:
            self._output.content = self.getvalue()
        super().close()
