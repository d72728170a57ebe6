"""S3, Azure and Google Cloud Storage for tests: emulators on loopback, and proxies with faults.

S3 is moto's server; Azure is Azurite, a program of npm's. For Google's, no emulator takes what obstore writes
by, the XML API. It is the API of S3 with other headers, so moto serves it with translated headers.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import boto3
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from obstore.store import AzureStore
from scripts.fetch_jars import S3
from werkzeug.serving import WSGIRequestHandler, make_server

Kind = Literal["s3", "gs", "azure"]

_ACCOUNT = "devstoreaccount1"
# The one that Azurite documents for everybody.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_PATIENCE_SECONDS = 60
_AZURITE = Path(__file__).parents[1] / ".venv" / ".azurite" / "node_modules" / ".bin" / "azurite-blob"


class NotInstalled(Exception):
    """An emulator isn't installed; the message has the command that installs it."""


@dataclass
class Bucket:
    """A bucket or container, read and written directly in its emulator.

    Attributes:
        uri: How tables in it are named.
        environment: What makes the emulator the store that the environment means.
        options: The same for `deltalake.DeltaTable`.
    """

    uri: str
    environment: dict[str, str]
    options: dict[str, str]
    put: Callable[[str, bytes], None]
    get: Callable[[str], bytes]
    names: Callable[[], list[str]]

    def content(self) -> dict[str, bytes]:
        """Return all objects."""
        return {key: self.get(key) for key in self.names()}


@dataclass
class Weather:
    """Functions that disturb requests to moto and its responses.

    Attributes:
        before: Receives a request first, and may answer it.
        after: Receives an answered request; True loses the response.
        requests: The requests so far, such as ``PUT /lake/t/_delta_log/…``.
    """

    before: Callable[[str, dict[str, Any]], tuple[str, bytes] | None] = lambda request, environ: None
    after: Callable[[str], bool] = lambda request: False
    requests: list[str] = field(default_factory=list)


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any, **__: Any) -> None:
        """Say nothing of each request."""


@contextmanager
def moto(port: int = 0) -> Iterator[tuple[str, Weather]]:
    """Run moto, and give its address and weather; it answers one request at a time, as it locks nothing.

    Args:
        port: Where it listens; 0 for anywhere.
    """
    weather = Weather()
    inner = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        weather.requests.append(request)
        if not environ.get("HTTP_AUTHORIZATION", "").startswith("AWS4"):
            _as_s3(environ)
        if answer := weather.before(request, environ):
            status, body = answer
            if not status:
                _hang_up(environ)
                return []
            start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        whole = list(inner(environ, start_response))
        if weather.after(request):
            _hang_up(environ)
        return whole

    server = make_server("127.0.0.1", port, app, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", weather
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _as_s3(environ: dict[str, Any]) -> None:
    """Write a request for Google's store as S3 has it; without a login moto keeps everything to itself."""
    environ["HTTP_AUTHORIZATION"] = (
        "AWS4-HMAC-SHA256 Credential=google/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
        "Signature=0"
    )
    if environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH") == "0":
        environ["HTTP_IF_NONE_MATCH"] = "*"
    for name in [name for name in environ if name.startswith("HTTP_X_GOOG_")]:
        environ[name.replace("GOOG", "AMZ")] = environ.pop(name)


def _hang_up(environ: dict[str, Any]) -> None:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


def s3(address: str, name: str) -> Bucket:
    """Make a bucket of moto's."""
    login = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    options = {**login, "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"}
    return _of_moto(address, name, f"s3://{name}", {**login, "AWS_ENDPOINT_URL": address}, options)


def spark_settings(port: int) -> dict[str, str]:
    """Give what makes moto at a port the S3 that Spark means, by the jars that `scripts.fetch_jars` got."""
    settings = {f"spark.hadoop.{key}": value for key, value in hadoop_settings(port).items()}
    return settings | {"spark.driver.extraClassPath": f"{S3}/*"}


def hadoop_settings(port: int) -> dict[str, str]:
    """Give what makes moto at a port the S3 that a Hadoop means which has those jars."""
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": f"http://127.0.0.1:{port}",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "tester",
        "fs.s3a.secret.key": "secret",
    }


def google(address: str, name: str, folder: Path) -> Bucket:
    """Make one that is Google's."""
    account = folder / "account.json"
    account.write_text(
        json.dumps(
            {"gcs_base_url": address, "disable_oauth": True, "client_email": "", "private_key": ""}
            | {"private_key_id": ""}
        )
    )
    environment = {"GOOGLE_SERVICE_ACCOUNT": str(account)}
    return _of_moto(
        address,
        name,
        f"gs://{name}",
        environment,
        {"google_service_account": str(account), "allow_http": "true"},
    )


def _of_moto(
    address: str, name: str, uri: str, environment: dict[str, str], options: dict[str, str]
) -> Bucket:
    client = boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id="owner",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=name)
    # Without a request, so a thousand objects cost no time.
    objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def put(key: str, body: bytes) -> None:
        objects.put_object(name, key, body)

    def names() -> list[str]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=name)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    return Bucket(
        uri,
        environment,
        options,
        put=put,
        get=lambda key: client.get_object(Bucket=name, Key=key)["Body"].read(),
        names=names,
    )


@contextmanager
def azurite() -> Iterator[str]:
    """Run Azurite, and give its address.

    Raises:
        NotInstalled: It isn't here.
    """
    program = str(_AZURITE) if _AZURITE.exists() else shutil.which("azurite-blob")
    if program is None:
        raise NotInstalled("Azurite isn't installed: install npm, and run `make azurite`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # With the data in memory, it writes nothing important to its folder.
    process = subprocess.Popen(
        (
            f"{program} --blobHost 127.0.0.1 --blobPort {port} --inMemoryPersistence --skipApiVersionCheck "
            "--disableTelemetry --silent"
        ).split(),
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("Azurite doesn't start") from None
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/{_ACCOUNT}"
    finally:
        process.terminate()
        process.wait()


def azure(address: str, name: str) -> Bucket:
    """Make a container of Azurite's."""
    store = AzureStore(
        name,
        account_name=_ACCOUNT,
        account_key=_KEY,
        endpoint=address,
        client_options={"allow_http": True},
    )
    _make_container(address, name)
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_STORAGE_ENDPOINT": address,
    }
    return Bucket(
        f"abfss://{name}@{_ACCOUNT}.dfs.core.windows.net",
        environment,
        {**{key.lower(): value for key, value in environment.items()}, "allow_http": "true"},
        put=lambda key, body: store.put(key, body, use_multipart=False) and None,
        get=lambda key: bytes(store.get(key).bytes()),
        names=lambda: sorted(meta["path"] for page in store.list() for meta in page),
    )


def _make_container(address: str, name: str) -> None:
    """Create a container by a signed request, because obstore can't create one."""
    import hashlib
    import hmac
    import urllib.request
    from email.utils import formatdate

    version, now = "2021-08-06", formatdate(usegmt=True)
    # https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
    signed = (
        "PUT" + "\n" * 12 + f"x-ms-date:{now}\nx-ms-version:{version}\n"
        f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    )
    digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(
        f"{address}/{name}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": now,
            "x-ms-version": version,
            "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201


def logged_out(environ: Iterable[str] = os.environ) -> list[str]:
    """Name the variables by which this machine may be logged in somewhere."""
    return [name for name in environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "DATABRICKS_"))]
