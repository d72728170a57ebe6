"""Files of a Unity Catalog volume that isn't mounted here, through the Files API of its workspace.

What the API promises, and what is built on that:

- A PUT puts one whole object, so that a reader sees the old file or the new one.
- A PUT with ``overwrite=false`` answers 409 where there is a file, so that of any number at once one wins.
- There is no rename and no lock.

Databricks' reference of the Files API says the first two; how exact the second is between two writers of the
same millisecond, it doesn't say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tableferry import workspace
from tableferry.errors import StateError, as_sentence
from tableferry.files.paths import hidden

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_T = TypeVar("_T")

_READ = "can't be read"
_WRITE = "can't be written"
_LIST = "can't be listed"


@dataclass(frozen=True)
class Volume:
    """A volume of the workspace that this client is logged in to."""

    root: Path
    client: WorkspaceClient

    def check(self) -> None:
        """Make sure that the volume is there, for in one that isn't, every file would look absent."""
        try:
            self._ask(
                self.root,
                "can't be reached",
                lambda: self.client.files.get_directory_metadata(str(self.root)),
            )
        except _Missing as error:
            raise StateError(
                "VOLUME_MISSING_IN_WORKSPACE", volume=self.root, host=self.client.config.host
            ) from error

    def read_text(self, path: Path) -> str | None:
        """Return the file's text, or None if there is no such file."""
        content = self._read(path)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError as error:
            raise StateError("FILE_NOT_TEXT", file=path) from error

    def write_text(self, path: Path, text: str) -> None:
        """Replace the file by ``text`` in one PUT, which is one whole object."""
        self._put(path, text.encode())

    def create_text(self, path: Path, text: str | Iterable[str]) -> bool:
        """Create the file unless it exists, by a PUT that the workspace refuses where there is one.

        Of any number of callers at once at most one gets True. None does where the winner's answer was lost
        on its way and asking again found its own file: that caller gets False too, and looks again.
        """
        whole = text if isinstance(text, str) else "".join(text)
        return self._put(path, whole.encode(), overwrite=False)

    def exists(self, path: Path) -> bool:
        """Return whether there is such a file."""

        def ask() -> bool:
            self.client.files.get_metadata(str(path))
            return True

        return self._ask(path, "can't be looked at", ask, {"missing": False})

    def modified(self, path: Path) -> int:
        """Return when a file was written, as milliseconds since 1970, UTC, by the workspace's clock."""

        def ask() -> int:
            stated = self.client.files.get_metadata(str(path)).last_modified
            assert stated is not None
            return int(parsedate_to_datetime(stated).timestamp() * 1000)

        return self._ask(path, "can't be looked at", ask)

    def names(self, path: Path) -> tuple[str, ...]:
        """List a folder's visible names in order; an absent folder is empty."""
        return tuple(sorted(name for name in self._entries(path) or () if not hidden(name)))

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it."""
        self._ask(path, _WRITE, lambda: self.client.files.create_directory(str(path)))

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it, one by one; absent is fine."""
        entries = self._entries(path)
        if entries is None:
            self._ask(path, _WRITE, lambda: self.client.files.delete(str(path)), {"missing": None})
            return
        for name in entries:
            self.remove(path / name)
        # Where folders are but the beginnings of names, the last file took its folder along.
        self._ask(path, _WRITE, lambda: self.client.files.delete_directory(str(path)), {"missing": None})

    def move(self, old: Path, new: Path) -> None:
        """Copy a file or a folder and remove the old one, for the API knows no rename; done already is fine.

        Can be repeated after a crash.
        """
        entries = self._entries(old)
        if entries is None:
            content = self._read(old)
            if content is not None:
                self._put(new, content)
                self.remove(old)
            return
        for name in entries:
            self.move(old / name, new / name)
        self.remove(old)

    @contextmanager
    def locked(self, paths: list[Path], what: str) -> Iterator[None]:
        """Lock nothing, for the API knows no locks, and what is done through it does without.

        Runs aren't started from outside (`tableferry.pipelines.migrate.run` refuses to). Taking a migration
        out is, and is safe beside a run inside: its mark is one PUT, behind which every other state file
        means nothing, and doing it twice at once is doing it once. Only a full refresh that another process
        begins between the mark and the look before it is not held off.
        """
        yield

    def _read(self, path: Path) -> bytes | None:
        def ask() -> bytes:
            contents = self.client.files.download(str(path)).contents
            assert contents is not None
            return contents.read()

        return self._ask(path, _READ, ask, {"missing": None})

    def _put(self, path: Path, content: bytes, *, overwrite: bool = True) -> bool:
        def ask() -> bool:
            self.client.files.upload(str(path), BytesIO(content), overwrite=overwrite)
            return True

        taken: Mapping[workspace.Kind, bool] = {} if overwrite else {"taken": False}
        try:
            return self._ask(path, _WRITE, ask, taken)
        except _Missing:
            self.make_folder(path.parent)
            return self._ask(path, _WRITE, ask, taken)

    def _entries(self, path: Path) -> tuple[str, ...] | None:
        """List all names of a folder; None if there is no such folder."""

        def ask() -> tuple[str, ...]:
            entries = self.client.files.list_directory_contents(str(path))
            return tuple(entry.name for entry in entries if entry.name)

        return self._ask(path, _LIST, ask, {"missing": None})

    def _ask(
        self,
        path: Path,
        failure: str,
        request: Callable[[], _T],
        instead: Mapping[workspace.Kind, _T] = {},
    ) -> _T:
        """Make a request; an answer that isn't expected becomes a sentence with the path and what failed."""
        try:
            return request()
        except Exception as error:
            trouble = workspace.trouble(error, self.client)
            if trouble is None:
                raise
            if trouble.kind in instead:
                return instead[trouble.kind]
            failed = _Missing if trouble.kind == "missing" else StateError
            raise failed(
                "VOLUME_REQUEST_FAILED",
                path=path,
                failure=failure,
                reason=trouble.reason,
                advice=as_sentence(trouble.remedy),
            ) from error


class _Missing(StateError):
    """There is no such file, folder or volume."""
