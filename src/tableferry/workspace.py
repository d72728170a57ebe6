"""Access to a Databricks workspace's REST API: its configuration, its client and its errors.

This module imports databricks-sdk only when a client is requested.
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
from typing import TYPE_CHECKING, Any, Literal

from tableferry.errors import MissingPackage, ServiceError, SessionError, TableferryError, first_line
from tableferry.errors.catalogue import as_sentence
from tableferry.extras import install

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

# Each of these variables shows that the user wants a workspace; an installed client alone doesn't.
DATABRICKS_VARIABLES = (
    "DATABRICKS_HOST",
    "DATABRICKS_CONFIG_PROFILE",
    "DATABRICKS_CLUSTER_ID",
    "DATABRICKS_SERVERLESS_COMPUTE_ID",
)
RUNTIME_VARIABLE = "DATABRICKS_RUNTIME_VERSION"

# Prefixes of the variables that affect the client's login.
_LOGIN_VARIABLES = ("DATABRICKS_", "ARM_", "AZURE_", "GOOGLE_", "HOME", "USERPROFILE")

# The client's default of five minutes suits jobs; a user at a terminal needs an answer sooner.
_TIMEOUT_SECONDS = 30

Kind = Literal["missing", "taken", "denied", "logged out", "unreachable", "failed"]


@dataclass(frozen=True)
class RequestFailure:
    """The reason why a workspace refused or failed a request.

    Attributes:
        kind: The kind of failure; ``taken`` means that the object exists already.
        reason: The workspace's message, as a part of a sentence.
        remedy: The user's next step, as the end of a sentence.
    """

    kind: Kind
    reason: str
    remedy: str

    def as_error(self, what: str) -> TableferryError:
        """Return the error with the failed action, the reason and the remedy."""
        advice = as_sentence(self.remedy)
        if self.kind in ("logged out", "unreachable"):
            return SessionError("WORKSPACE_UNREACHABLE", problem=what, reason=self.reason, advice=advice)
        return ServiceError("WORKSPACE_REQUEST_FAILED", problem=what, reason=self.reason, advice=advice)


def profile(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the profile that the Databricks client would use; empty if it is missing.

    Raises:
        SessionError: The configuration file can't be read.
    """
    file = Path(environ.get("DATABRICKS_CONFIG_FILE") or "~/.databrickscfg").expanduser()
    # In the client, unlike in Python's ConfigParser, profiles don't inherit from DEFAULT.
    parser = ConfigParser(interpolation=None, default_section="\0")
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ConfigError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise SessionError("DATABRICKS_CONFIG_NOT_READABLE", file=file, reason=first) from error
    name = environ.get("DATABRICKS_CONFIG_PROFILE", "DEFAULT")
    if name in parser:
        return dict(parser[name])
    return {}


def configured(environ: Mapping[str, str]) -> bool:
    """Return whether an environment variable or a profile configures a workspace.

    Raises:
        SessionError: The configuration file can't be read.
    """
    return any(environ.get(name) for name in DATABRICKS_VARIABLES) or bool(profile(environ))


def client() -> WorkspaceClient:
    """Return the workspace's client, with the same login as the Databricks command line.

    The client is cached until an environment variable that affects its login changes.

    Raises:
        SessionError: databricks-sdk isn't installed, or the client has no login.
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
        raise MissingPackage("DATABRICKS_SDK_MISSING", command=install("databricks")) from error
    # The client also logs its errors. Without this handler, Python would print them if logging isn't set up.
    logging.getLogger("databricks.sdk").addHandler(logging.NullHandler())
    try:
        return WorkspaceClient(
            config=Config(
                product="tableferry",
                retry_timeout_seconds=_TIMEOUT_SECONDS,
                # State files are small and need one request each. The experimental client uses links to the
                # cloud's storage, which many networks block.
                disable_experimental_files_api_client=True,
            )
        )
    except ValueError as error:
        host = os.environ.get("DATABRICKS_HOST") or profile(os.environ).get("host") or "the workspace"
        raise SessionError(
            "WORKSPACE_LOGIN_MISSING", host=host, reason=_client_message(error), command=_login_command(host)
        ) from error


@contextmanager
def request(what: str, *, passing: Kind | None = None) -> Iterator[WorkspaceClient]:
    """Provide the client inside a ``with``, and convert its errors.

    Args:
        what: The failed action, for the message.
        passing: A kind of error that ends the ``with`` silently.

    Raises:
        SessionError: The client has no login, or the workspace doesn't answer.
        ServiceError: The workspace refuses the request.
    """
    workspace = client()
    try:
        yield workspace
    except Exception as error:
        reason = request_failure(error, workspace)
        if reason is None:
            raise
        if reason.kind != passing:
            raise reason.as_error(what) from error


def request_failure(error: Exception, workspace: WorkspaceClient) -> RequestFailure | None:
    """Return the reason and the remedy for an error of the client; None for other exceptions."""
    from databricks.sdk import errors
    from databricks.sdk.errors.base import DatabricksError

    host = workspace.config.host or "the workspace"
    if isinstance(error, TimeoutError) and isinstance(error.__cause__, Exception):
        # The cause of the timeout is more helpful than the timeout.
        return request_failure(error.__cause__, workspace)
    match error:
        case errors.NotFound():
            return RequestFailure("missing", _client_message(error), f"search for it in {host}")
        case errors.ResourceConflict():
            return RequestFailure(
                "taken", _client_message(error), "use another name, or remove the existing one"
            )
        case errors.Unauthenticated():
            return RequestFailure("logged out", _client_message(error), _log_in(host))
        case errors.PermissionDenied():
            return RequestFailure("denied", _client_message(error), f"ask its owner in {host} for the right")
        case DatabricksError():
            return RequestFailure("failed", _client_message(error), "run again")
        case OSError():
            reason = f"{host} doesn't answer: {type(error).__name__}"
            return RequestFailure("unreachable", reason, "check DATABRICKS_HOST and the network")
        case ValueError():
            # The client raises ValueError for logins that it resolves with its first request.
            return RequestFailure("logged out", _client_message(error), _log_in(host))
        case _:
            return None


def get_json(client: WorkspaceClient, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the complete JSON answer to a GET request; the client's own classes drop unknown fields."""
    answer: Any = client.api_client.do("GET", path, query=dict(query), headers=_headers(client))
    return dict(answer)


def patch_json(client: WorkspaceClient, path: str, body: Mapping[str, Any]) -> None:
    """Send a PATCH request for which the client has no method."""
    client.api_client.do("PATCH", path, body=dict(body), headers=_headers(client))


def _headers(client: WorkspaceClient) -> dict[str, str]:
    # Several workspaces may share one address; this header selects one.
    identity = getattr(client.config, "workspace_id", None)
    selection = {"X-Databricks-Workspace-Id": str(identity)} if identity else {}
    return {"Accept": "application/json", **selection}


def _log_in(host: str) -> str:
    return f"log in with {_login_command(host)}, or set DATABRICKS_HOST and DATABRICKS_TOKEN"


def _login_command(host: str) -> str:
    at = f" --host {host}" if host.startswith("http") else ""
    return f"`databricks auth login{at}`"


def _client_message(error: Exception) -> str:
    """Return the client's message without the settings and links that it appends."""
    return first_line(error).split(". Config: ")[0].split(", please check https://")[0].rstrip(". ")
