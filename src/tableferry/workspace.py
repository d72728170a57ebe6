"""The one way to a Databricks workspace's REST API: whether one is meant, its client, its errors.

Nothing here needs databricks-sdk before a client is asked for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tableferry.errors import SessionError, TableferryError, first_line
from tableferry.extras import install

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

# Any one of these says that the user means a workspace; without one, the client being installed says nothing.
DATABRICKS_VARIABLES = (
    "DATABRICKS_HOST",
    "DATABRICKS_CONFIG_PROFILE",
    "DATABRICKS_CLUSTER_ID",
    "DATABRICKS_SERVERLESS_COMPUTE_ID",
)
RUNTIME_VARIABLE = "DATABRICKS_RUNTIME_VERSION"

# What the client's login can depend on.
_LOGIN_VARIABLES = ("DATABRICKS_", "ARM_", "AZURE_", "GOOGLE_", "HOME", "USERPROFILE")

# The client's own five minutes are for jobs; whoever waits at a terminal gets an answer sooner.
_TIMEOUT_SECONDS = 30

Kind = Literal["missing", "taken", "denied", "logged out", "unreachable", "failed"]


@dataclass(frozen=True)
class Trouble:
    """Why a workspace didn't do what it was asked.

    Attributes:
        kind: What to make of it; ``taken`` means that something is there already.
        reason: What the workspace said, as part of a sentence.
        remedy: What to do about it, as the end of one.
    """

    kind: Kind
    reason: str
    remedy: str

    def as_error(self, what: str) -> TableferryError:
        """Return the error that says what couldn't be done, why, and what to do."""
        kind = SessionError if self.kind in ("logged out", "unreachable") else TableferryError
        return kind(f"{what} ({self.reason}): {self.remedy}")


def profile(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Read the profile that the Databricks client would take; empty where there is none.

    Raises:
        SessionError: The file of profiles can't be read.
    """
    file = Path(environ.get("DATABRICKS_CONFIG_FILE") or "~/.databrickscfg").expanduser()
    # Unlike Python's own reading of such a file, the client lets no profile inherit from DEFAULT.
    parser = ConfigParser(interpolation=None, default_section="\0")
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ConfigError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise SessionError(f"{file} can't be read ({first}): fix it, or remove it") from error
    name = environ.get("DATABRICKS_CONFIG_PROFILE", "DEFAULT")
    if name in parser:
        return dict(parser[name])
    return {}


def configured(environ: Mapping[str, str]) -> bool:
    """Return whether the user means a workspace: by a variable, or by a profile.

    Raises:
        SessionError: The file of profiles can't be read.
    """
    return any(environ.get(name) for name in DATABRICKS_VARIABLES) or bool(profile(environ))


def client() -> WorkspaceClient:
    """Give the workspace's client, logged in as the Databricks command line would be.

    The same client comes back until one of the variables changes that its login depends on.

    Raises:
        SessionError: databricks-sdk isn't installed, or there is no login.
    """
    return _client(
        frozenset((name, value) for name, value in os.environ.items() if name.startswith(_LOGIN_VARIABLES))
    )


@lru_cache(maxsize=1)
def _client(_: frozenset[tuple[str, str]]) -> WorkspaceClient:
    try:
        from databricks.sdk import WorkspaceClient
        from databricks.sdk.config import Config
    except ImportError as error:
        raise SessionError(
            "the workspace is reached through databricks-sdk, which isn't installed here: "
            + install("databricks")
        ) from error
    # The client logs what it raises as well, and where nobody has set up logging, Python prints that.
    logging.getLogger("databricks.sdk").addHandler(logging.NullHandler())
    try:
        return WorkspaceClient(
            config=Config(
                product="tableferry",
                retry_timeout_seconds=_TIMEOUT_SECONDS,
                # Files that hold state are small: one request each, and no links into the cloud's own
                # storage, which many networks don't let through.
                disable_experimental_files_api_client=True,
            )
        )
    except ValueError as error:
        host = os.environ.get("DATABRICKS_HOST") or profile(os.environ).get("host") or "the workspace"
        raise SessionError(f"no login to {host} ({_said(error)}): {_log_in(host)}") from error


@contextmanager
def asking(what: str, *, passing: Kind | None = None) -> Iterator[WorkspaceClient]:
    """Give the client for the length of a ``with``, and say of its errors what couldn't be done.

    Errors of the kind that is passed over end the ``with`` without a word.

    Raises:
        SessionError: There is no login, or the workspace doesn't answer.
        TableferryError: The workspace refuses what it's asked.
    """
    workspace = client()
    try:
        yield workspace
    except Exception as error:
        reason = trouble(error, workspace)
        if reason is None:
            raise
        if reason.kind != passing:
            raise reason.as_error(what) from error


def trouble(error: Exception, workspace: WorkspaceClient) -> Trouble | None:
    """Return what an error of the client means; None if it isn't one of the client's."""
    from databricks.sdk import errors
    from databricks.sdk.errors.base import DatabricksError

    host = workspace.config.host or "the workspace"
    if isinstance(error, TimeoutError) and isinstance(error.__cause__, Exception):
        # What the client gave up at says more than that it gave up.
        return trouble(error.__cause__, workspace)
    match error:
        case errors.NotFound():
            return Trouble("missing", _said(error), f"look for it in {host}")
        case errors.ResourceConflict():
            return Trouble("taken", _said(error), "use another name, or remove what is there")
        case errors.Unauthenticated():
            return Trouble("logged out", _said(error), _log_in(host))
        case errors.PermissionDenied():
            return Trouble("denied", _said(error), f"ask whoever owns it in {host} for the right")
        case DatabricksError():
            return Trouble("failed", _said(error), "run again")
        case OSError():
            reason = f"{host} doesn't answer: {type(error).__name__}"
            return Trouble("unreachable", reason, "check DATABRICKS_HOST and the network")
        case ValueError():
            # Logins that are looked up with the first request fail so.
            return Trouble("logged out", _said(error), _log_in(host))
        case _:
            return None


def _log_in(host: str) -> str:
    at = f" --host {host}" if host.startswith("http") else ""
    return f"log in with `databricks auth login{at}`, or set DATABRICKS_HOST and DATABRICKS_TOKEN"


def _said(error: Exception) -> str:
    """Return the client's sentence without the settings and links that it adds to it."""
    return first_line(error).split(". Config: ")[0].split(", please check https://")[0].rstrip(". ")
