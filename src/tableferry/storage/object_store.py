"""Access files on S3, ADLS and GCS through their APIs with obstore, without Java."""

# This module relies on these properties of the stores:
#
# - A PUT writes a complete object; later reads and listings see it.
# - A conditional PUT (``If-None-Match: *``; on GCS generation 0) fails if the object exists, so one of
#   several concurrent callers wins. Some S3-compatible stores don't support it, and a few of them ignore the
#   condition. So before the first such PUT in a folder, two PUTs of a temporary object check the store.
# - The stores have no folders, no rename and no locks.
#
# Credentials come from the environment:
#
# - S3: boto3's search (variables, profiles, roles) if boto3 is installed
# - Azure: environment variables, the login of ``az`` and the machine's identity
# - Google: the application default credentials
#
# Endpoints come from environment variables such as ``AWS_ENDPOINT_URL``.

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.errors import MissingPackage, StateError
from tableferry.errors.catalogue import as_sentence
from tableferry.extras import install
from tableferry.storage.paths import hidden

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("s3", "s3a"), "S3"),
    **dict.fromkeys(("abfs", "abfss", "az"), "Azure"),
    "gs": "Google",
}
_LOGINS = {
    "S3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "Azure": "set AZURE_STORAGE_ACCOUNT_KEY, or log in with `az login`",
    "Google": "set GOOGLE_APPLICATION_CREDENTIALS, or log in with `gcloud auth application-default login`",
}
_AZURE_VARIABLES = ("KEY", "SECRET", "TOKEN", "SAS", "IDENTITY", "EMULATOR")

# The first request fails within seconds if the store is unreachable; later requests retry for minutes.
_AT_FIRST = {"max_retries": 1, "retry_timeout": timedelta(seconds=3)}
_LATER = {"max_retries": 10, "retry_timeout": timedelta(minutes=2)}
_CONNECT = "3s"

_PROBE = "_tableferry_"
_LEFT_PROBE = re.compile(rf"{_PROBE}[0-9a-f]{{32}}")
# An older probe was left by a process that died.
_LEFT = timedelta(hours=1)

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
# Parts of the errors of a client without credentials. The addresses are those of the clouds' metadata
# servers, which the client queries for the machine's identity.
_NO_LOGIN = ("169.254.169.254", "metadata.google.internal", "Received None from session.get_credentials")
_NO_ANSWER = ("error sending request", "timed out", "dns error")
_MOST = 200
# Minimum number of bytes per request of an open object.
_FETCHED = 1 << 20
# Number of names in one response of a listing.
_PAGE = 1000

_log = logging.getLogger(__name__)


class NotExclusive(StateError):
    """The store doesn't support creating an object only if it doesn't exist."""


@dataclass(frozen=True, order=True)
class ObjectPath:
    """The key of an object, or the common prefix of several keys, which acts as a folder.

    Attributes:
        store: The scheme and the bucket or container: ``s3://lake``, ``abfss://lake@account.dfs.core.windows.net``.
        key: The key or the prefix, without ``/`` at either end; empty for the complete store.
    """

    store: str
    key: str = ""

    @classmethod
    def parse(cls, uri: str) -> ObjectPath | None:
        """Parse a URI; return None if its scheme isn't that of a supported store."""
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme.lower() not in _KINDS:
            return None
        bucket, _, key = rest.partition("/")
        return cls(f"{scheme.lower()}://{bucket}", re.sub("/+", "/", key).strip("/"))

    @property
    def name(self) -> str:
        """The last component of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The path without the last component of its key."""
        return ObjectPath(self.store, self.key.rpartition("/")[0])

    def __truediv__(self, below: str) -> ObjectPath:
        return ObjectPath(self.store, f"{self.key}/{below}".strip("/")) if below else self

    def __str__(self) -> str:
        return f"{self.store}/{self.key}".rstrip("/")


class Object(NamedTuple):
    """An object in a listing of its store.

    Attributes:
        path: Its key relative to the listed path.
        size: Its size in bytes.
        modified: Its modification time in milliseconds since 1970, UTC.
    """

    path: str
    size: int
    modified: int


@dataclass(frozen=True)
class ObjectStore:
    """A bucket or container."""

    store: str

    def below(self, path: ObjectPath) -> Iterator[Object]:
        """Yield all objects below a path, at any depth, without the empty objects that represent folders."""
        start = len(path.key) + 1 if path.key else 0
        with _as_state_errors(path, "can't be listed"):
            found = [
                Object(meta["path"][start:], meta["size"], _millis(meta["last_modified"]))
                for page in _client(self.store).list(path.key or None)
                for meta in page
            ]
        folders = {folder for item in found for folder in _folders(item.path)}
        for item in found:
            if item.size or not self._is_folder(path, item.path, folders):
                yield item

    def read(self, path: ObjectPath, most: int | None = None) -> bytes | None:
        """Return an object's bytes, or None if the object doesn't exist or has more than ``most`` bytes."""
        with _as_state_errors(path, "can't be read"):
            try:
                found = _client(self.store).get(path.key)
                return bytes(found.bytes()) if most is None or found.meta["size"] <= most else None
            except FileNotFoundError:
                return None

    def read_range(self, path: ObjectPath, start: int, count: int) -> bytes:
        """Return ``count`` bytes of an object from an offset, or fewer if the object ends before.

        Raises:
            FileNotFoundError: The object doesn't exist.
            StateError: The object can't be read.
        """
        with _as_state_errors(path, "can't be read", absent=True):
            return bytes(_client(self.store).get_range(path.key, start=start, length=count))

    def open(self, path: ObjectPath, size: int) -> io.BufferedReader:
        """Open an object of ``size`` bytes for reading; small reads fetch 1 MiB."""
        return io.BufferedReader(_Reader(self, path, size), _FETCHED)

    def modified(self, path: ObjectPath) -> int:
        """Return the modification time in milliseconds since 1970, UTC, by the store's clock."""
        with _as_state_errors(path, "can't be inspected"):
            return _millis(_client(self.store).head(path.key)["last_modified"])

    def read_text(self, path: ObjectPath, most: int | None = None) -> str | None:
        """Return an object's text, or None if the object doesn't exist or has more than ``most`` bytes."""
        content = self.read(path, most)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError as error:
            raise StateError("FILE_NOT_TEXT", file=path) from error

    def write_text(self, path: ObjectPath, text: str) -> None:
        """Replace the object by ``text`` with one PUT, which is atomic."""
        with _as_state_errors(path, "can't be written"):
            _client(self.store).put(path.key, text.encode(), use_multipart=False)

    def create_text(self, path: ObjectPath, text: str | Iterable[str]) -> bool:
        """Create the object unless it exists; at most one of several concurrent callers gets True.

        All get False if the network loses the response to the winner: its retry then finds its own object.

        Raises:
            NotExclusive: The store doesn't support this.
        """
        _require_exclusive(path.parent)
        whole = text if isinstance(text, str) else "".join(text)
        with _as_state_errors(path, "can't be written"):
            return _create(path, whole.encode())

    def exists(self, path: ObjectPath) -> bool:
        """Return whether the object exists."""
        with _as_state_errors(path, "can't be inspected"):
            try:
                _client(self.store).head(path.key)
            except FileNotFoundError:
                return False
            return True

    def all_names(self, path: ObjectPath) -> tuple[str, ...]:
        """Return the names directly below a path in order: those of objects and of folder prefixes."""
        objects, folders = self.entries(path)
        return tuple(sorted({*objects, *folders}))

    def entries(self, path: ObjectPath) -> tuple[list[str], list[str]]:
        """Return the names of the objects and of the folder prefixes directly below a path, each in order."""
        start = len(path.key) + 1 if path.key else 0
        with _as_state_errors(path, "can't be listed"):
            listed = _client(self.store).list_with_delimiter(path.key or None)
            folders = sorted(name[start:] for name in listed["common_prefixes"])
            objects = (meta["path"][start:] for meta in listed["objects"])
            return sorted({*objects} - {"", *folders}), folders

    def first_names(self, path: ObjectPath) -> tuple[str, ...]:
        """Return the names of the first objects directly below a path, in order, with one request."""
        start = len(path.key) + 1 if path.key else 0
        with _as_state_errors(path, "can't be listed"):
            page = next(iter(_client(self.store).list(path.key or None, chunk_size=_PAGE)), ())
            below = [meta["path"][start:] for meta in page]
        return tuple(name for name in below if name and "/" not in name)

    def names(self, path: ObjectPath) -> tuple[str, ...]:
        """Return the visible names directly below a path in order."""
        return tuple(name for name in self.all_names(path) if not hidden(name))

    def make_folder(self, path: ObjectPath) -> None:
        """Do nothing, because object stores have no folders."""

    def remove(self, path: ObjectPath) -> None:
        """Remove an object and all objects below its key; do nothing if they don't exist."""
        with _as_state_errors(path, "can't be removed"):
            client = _client(self.store)
            for page in client.list(path.key):
                with suppress(FileNotFoundError):
                    client.delete([meta["path"] for meta in page])
            with suppress(FileNotFoundError):
                client.delete(path.key)

    def move(self, old: ObjectPath, new: ObjectPath) -> None:
        """Copy an object and all objects below its key, and remove the old ones; skip missing objects."""
        with _as_state_errors(new, "can't be written"):
            client = _client(self.store)
            keys = [meta["path"] for page in client.list(old.key) for meta in page]
            for key in (old.key, *keys):
                try:
                    client.copy(key, new.key + key[len(old.key) :])
                except FileNotFoundError:
                    continue
                client.delete(key)

    @contextmanager
    def locked(self, paths: Sequence[ObjectPath], what: str) -> Iterator[None]:
        """Lock nothing, because object stores have no locks."""
        yield

    def _is_folder(self, top: ObjectPath, path: str, folders: set[str]) -> bool:
        """Return whether an empty object represents a folder, as the ``events/`` that Hadoop creates."""
        if path in folders or not path or path.endswith("_$folder$"):
            return True
        # obstore lists `events/` as `events`, and no object has that key.
        return not self.exists(top / path)


class _Reader(io.RawIOBase):
    """A Python file object that reads an object, so that Arrow can read it."""

    def __init__(self, store: ObjectStore, path: ObjectPath, size: int) -> None:
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._at)
        if count <= 0:
            return 0
        data = self._store.read_range(self._path, self._at, count)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _folders(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _millis(time: Any) -> int:
    return int(time.timestamp() * 1000)


def _create(path: ObjectPath, content: bytes) -> bool:
    from obstore.exceptions import AlreadyExistsError

    try:
        _client(path.store).put(path.key, content, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    return True


@lru_cache
def _require_exclusive(folder: ObjectPath) -> None:
    """Check with a temporary object that the store refuses to create an object that exists.

    Raises:
        NotExclusive: The store created the object twice, or doesn't support conditional requests.
        StateError: The store can't be reached, or the object can't be written.
    """
    probe = folder / f"{_PROBE}{uuid.uuid4().hex}"
    with _as_state_errors(probe, "can't be written"):
        try:
            # The first result isn't reliable: after a lost response, the client's retry finds its own object.
            _create(probe, b"")
            exclusive = not _create(probe, b"")
        except Exception as error:
            if not isinstance(error, NotImplementedError) and _status(error) != "501":
                raise
            exclusive = False
    try:
        _remove_probes(probe)
    except Exception as error:  # Some logins may write objects but not remove them.
        reason = _reason(probe, error)[0]
        _log.warning("%s can't be removed (%s): it's empty, and nothing reads it", probe, reason)
    if not exclusive:
        raise NotExclusive("STORE_NOT_EXCLUSIVE", store=folder.store)


def _remove_probes(probe: ObjectPath) -> None:
    """Remove a probe, and probes in the same folder that are older than an hour, left by dead processes."""
    client, folder = _client(probe.store), probe.parent
    # The listing is ordered, so the offset skips the many commit files, whose names begin with digits.
    listed = client.list(folder.key or None, offset=(folder / _PROBE).key, chunk_size=_PAGE)
    page = next(iter(listed), ())
    times = {meta["path"]: meta["last_modified"] for meta in page}
    client.delete(probe.key)
    if probe.key in times:
        before = times[probe.key] - _LEFT
        names = [key for key in times if _LEFT_PROBE.fullmatch(key.rpartition("/")[2])]
        if left := [key for key in names if times[key] < before]:
            client.delete(left)


@lru_cache
def _client(store: str) -> Client:
    """Return the client of a store after a successful request; cached by store.

    Raises:
        StateError: The store doesn't answer, or refuses access.
        MissingPackage: obstore or one of its dependencies isn't installed.
    """
    try:
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "MISSING_PACKAGE_FOR_STORE", store=store, package=error.name, command=install("cloud")
        ) from error
    # Typed as Any, because the overloads of `from_url` differ in the settings for each kind of store.
    make: Any = from_url
    with _as_state_errors(ObjectPath(store), "can't be reached"):
        # `allow_http` affects only endpoints from environment variables; the clouds' own use TLS.
        options = {"client_options": {"connect_timeout": _CONNECT, "allow_http": True}, **_login(store)}
        # This request detects an unreachable store early. A login without the right to list the complete
        # store (403) may still be able to list a part of it.
        try:
            next(iter(make(store, retry_config=_AT_FIRST, **options).list()), None)
        except Exception as error:
            if _status(error) != "403" or _has_no_login(error):
                raise
        client: Client = make(store, retry_config=_LATER, **options)
        return client


def _login(store: str) -> dict[str, Any]:
    """Return settings that obstore doesn't detect: boto3's credentials and region, or the use of ``az``."""
    match _kind(store):
        case "S3" if find_spec("boto3"):
            import boto3
            from obstore.auth.boto3 import Boto3CredentialProvider

            session = boto3.Session()
            return {
                "credential_provider": Boto3CredentialProvider(session),
                "region": session.region_name or "us-east-1",
            }
        case "Azure" if shutil.which("az") and not _azure_is_set():
            return {"use_azure_cli": True}
        case _:
            return {}


def delta_options(path: ObjectPath) -> dict[str, str]:
    """Return the store settings for deltalake that aren't in the environment; credentials don't refresh."""
    login = _login(path.store)
    options = {"allow_http": "true"}
    if "credential_provider" in login:
        import boto3

        options["aws_region"] = login["region"]
        if found := boto3.Session().get_credentials():
            keys = found.get_frozen_credentials()
            options |= {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
            options |= {"aws_session_token": keys.token} if keys.token else {}
    if "use_azure_cli" in login:
        options["azure_use_azure_cli"] = "true"
    return options


def _azure_is_set() -> bool:
    return any(name.startswith("AZURE_") and any(map(name.count, _AZURE_VARIABLES)) for name in os.environ)


@contextmanager
def _as_state_errors(path: ObjectPath, failure: str, *, absent: bool = False) -> Iterator[None]:
    """Convert the store's errors inside the ``with`` into StateError with path, reason and remedy.

    With ``absent``, FileNotFoundError isn't converted.
    """
    try:
        yield
    except FileNotFoundError as error:
        if absent:
            raise
        raise StateError("STORE_OBJECT_MISSING", object=path, failure=failure) from error
    except (StateError, NotImplementedError):
        raise
    except Exception as error:
        reason, remedy = _reason(path, error)
        raise StateError(
            "STORE_REQUEST_FAILED", object=path, failure=failure, reason=reason, advice=as_sentence(remedy)
        ) from error


def _reason(path: ObjectPath, error: Exception) -> tuple[str, str]:
    text, login = str(error), _LOGINS[_kind(path.store)]
    code, status = match[1] if (match := _CODE.search(text)) else "", _status(error)
    if _has_no_login(error):
        return "no credentials are found", login
    if status in ("401", "403"):
        return f"access is refused: {code or status}", f"check the credentials and their rights, or {login}"
    if code in ("NoSuchBucket", "ContainerNotFound") or status == "404":
        return f"there is no {path.store}", "check its name"
    if any(sign in text for sign in _NO_ANSWER):
        return "nothing answers", "check the network, and the endpoint if one is set"
    if type(error).__module__.startswith("botocore."):
        return text.rstrip("."), login
    if type(error).__name__ == "InvalidPathError":
        return text.split("\n")[0], "give that object another name"
    return text.split("\n")[0][:_MOST].rstrip(), "read the store's message"


def _kind(store: str) -> str:
    return _KINDS[store.partition(":")[0]]


def _status(error: Exception) -> str:
    return match[1] if (match := _STATUS.search(str(error))) else ""


def _has_no_login(error: Exception) -> bool:
    return any(sign in str(error) for sign in _NO_LOGIN)
