"""Where something stands in a project's files."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.errors import Finding, Problem


@dataclass(frozen=True)
class SourceLocation:
    """A file and a key path inside it.

    Attributes:
        file: The file, as messages name it.
        path: Such as ``flowGroups[0].flows.f_orders``; empty for the whole file.
    """

    file: str
    path: str = ""

    def at(self, *steps: str | int) -> SourceLocation:
        """Go down by keys and list positions."""
        path = self.path
        for step in steps:
            if isinstance(step, int):
                path += f"[{step}]"
            else:
                key = step or "''"
                path = f"{path}.{key}" if path else key
        return SourceLocation(self.file, path)

    def covers(self, path: str) -> bool:
        """Say whether a key path stands here or below."""
        return path == self.path or path.startswith((self.path + ".", self.path + "["))

    def problem(self, finding: Finding) -> Problem:
        """Return a finding as a problem of this place."""
        return Problem.of(finding, self.file, self.path)

    def __str__(self) -> str:
        """Write it as messages do."""
        return f"{self.file}: {self.path}" if self.path else self.file
