"""Access files of a Unity Catalog volume through the Files API of its workspace."""

# This module relies on these properties of the Files API:
#
# - A PUT writes a complete object, so a reader sees the old file or the new one.
# - A PUT with ``overwrite=false`` returns 409 if the file exists, so one of several concurrent callers wins.
# - The API has no rename and no locks.
#
# Databricks' reference of the Files API documents the first two. It doesn't document whether the second is
# exact for two writers in the same millisecond.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tableferry import workspace
from tableferry.errors import StateError
from tableferry.errors.catalogue import as_sentence
from tableferry.storage.paths import hidden

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
        """Check that the volume exists, because in a missing volume every file would seem to be missing.

        Raises:
            StateError: The volume doesn't exist or can't be reached.
        """
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
        """Return the file's text, or None if the file doesn't exist."""
        content = self._read(path)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError as error:
            raise StateError("FILE_NOT_TEXT", file=path) from error

    def write_text(self, path: Path, text: str) -> None:
        """Replace the file by ``text`` with one PUT, which is atomic."""
        self._put(path, text.encode())

    def create_text(self, path: Path, text: str | Iterable[str]) -> bool:
        """Create the file with a PUT that the workspace refuses if the file exists.

        At most one of several concurrent callers gets True. All get False if the network loses the response
        to the winner: its retry then finds its own file. Callers must reread the file after False.
        """
        whole = text if isinstance(text, str) else "".join(text)
        return self._put(path, whole.encode(), overwrite=False)

    def exists(self, path: Path) -> bool:
        """Return whether the file exists."""

        def ask() -> bool:
            self.client.files.get_metadata(str(path))
            return True

        return self._ask(path, "can't be inspected", ask, {"missing": False})

    def modified(self, path: Path) -> int:
        """Return the modification time in milliseconds since 1970, UTC, by the workspace's clock."""

        def ask() -> int:
            stated = self.client.files.get_metadata(str(path)).last_modified
            assert stated is not None
            return int(parsedate_to_datetime(stated).timestamp() * 1000)

        return self._ask(path, "can't be inspected", ask)

    def names(self, path: Path) -> tuple[str, ...]:
        """Return a folder's visible names in order; empty if the folder doesn't exist."""
        return tuple(name for name in self.all_names(path) if not hidden(name))

    def all_names(self, path: Path) -> tuple[str, ...]:
        """Return a folder's names in order, including hidden ones; empty if the folder doesn't exist."""
        return tuple(sorted(self._entries(path) or ()))

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents."""
        self._ask(path, _WRITE, lambda: self.client.files.create_directory(str(path)))

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder and its contents one by one; do nothing if it doesn't exist."""
        entries = self._entries(path)
        if entries is None:
            self._ask(path, _WRITE, lambda: self.client.files.delete(str(path)), {"missing": None})
            return
        for name in entries:
            self.remove(path / name)
        # If folders are only prefixes of names, the folder disappears with its last file.
        self._ask(path, _WRITE, lambda: self.client.files.delete_directory(str(path)), {"missing": None})

    def move(self, old: Path, new: Path) -> None:
        """Copy a file or a folder and remove the old one, because the API has no rename.

        Do nothing if the old name doesn't exist. The call can be repeated after a crash.
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
    def locked(self, paths: Sequence[Path], what: str) -> Iterator[None]:
        """Lock nothing, because the API has no locks.

        Inside a workspace, leases exclude concurrent runs. The operations from outside don't need locks:
        `tableferry.pipelines.commands.run` refuses runs from outside the workspace. Removing a migration from
        outside is safe during a run inside: its mark is one PUT, after which no other state file counts, and
        two concurrent removals have the effect of one. The only unprotected case is a full refresh that
        another process starts between the removal's check and its mark.
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
        """Return all names in a folder; None if the folder doesn't exist."""

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
        """Send a request, and return its result or the value in ``instead`` for an expected kind of failure.

        Raises:
            StateError: The request failed in another way; the message names the path and the action.
        """
        try:
            return request()
        except Exception as error:
            trouble = workspace.request_failure(error, self.client)
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
    """The file, folder or volume doesn't exist."""
