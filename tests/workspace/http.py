"""The HTTP server of the fake workspace: routes, requests, answers and refusals."""

from __future__ import annotations

import json
import re
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """A request; the values of the route's ``{names}`` are in ``names``, unquoted."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def json(self) -> dict[str, Any]:
        given: dict[str, Any] = json.loads(self.body)
        return given


@dataclass(frozen=True)
class Answer:
    """An answer: bytes are sent unchanged, None as an empty body, everything else as JSON."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedRequest(Exception):
    """An error of the REST API."""

    def __init__(self, status: int, error_code: str, message: str, **info: str) -> None:
        super().__init__(message)
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}] if info else []
        self.answer = Answer({"error_code": error_code, "message": message, "details": details}, status)


def not_found(message: str) -> RefusedRequest:
    return RefusedRequest(404, "NOT_FOUND", message)


Handler = Callable[[Any, Request], Any]


def route(method: str, path: str) -> Callable[[Handler], Handler]:
    """Mark the method that handles a route; ``{name}`` matches one segment, ``{name...}`` the rest."""

    def mark(handler: Handler) -> Handler:
        pattern = re.sub(r"\\\{(\w+)\\\.\\\.\\\.\\\}", r"(?P<\1>.*)", re.escape(path))
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", pattern)
        routes: list[tuple[str, re.Pattern[str]]] = handler.__dict__.setdefault("routes", [])
        routes.append((method, re.compile(pattern)))
        return handler

    return mark


class Server:
    """Passes requests to its methods that are marked with `route`, one at a time.

    Attributes:
        token: The token that a request must have.
        unknown: Requests of unknown routes.
        broken: Stack traces of errors in the workspace itself.
        asked: Every request, as ``METHOD /path``.
    """

    token = "token-of-a-test"

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.broken: list[str] = []
        self.asked: list[str] = []
        self._losing = False
        self._lock = threading.Lock()
        self._http = _HTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        members = [getattr(type(self), name) for name in dir(type(self))]
        self._routes = [(*route, handler) for handler in members for route in getattr(handler, "routes", ())]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def lose_next_answer(self) -> None:
        """Handle the next request that changes something, and drop the answer to it."""
        self._losing = True

    def loses(self, request: Request) -> bool:
        """Return whether to drop the answer to this request."""
        losing, self._losing = self._losing, self._losing and request.method in ("GET", "HEAD")
        return losing and not self._losing

    def answer(self, request: Request, authorization: str) -> Answer:
        """Answer a request, also after an error of the workspace."""
        with self._lock:
            self.asked.append(f"{request.method} {request.path}")
            try:
                return self._answer(request, authorization)
            except RefusedRequest as refused:
                return refused.answer
            except Exception:
                self.broken.append(traceback.format_exc())
                return RefusedRequest(500, "INTERNAL_ERROR", "the fake workspace broke").answer

    def _answer(self, request: Request, authorization: str) -> Answer:
        for method, pattern, handler in self._routes:
            if request.method == method and (match := pattern.fullmatch(request.path)):
                if authorization != f"Bearer {self.token}" and not request.path.startswith("/.well-known/"):
                    raise RefusedRequest(
                        401, "UNAUTHENTICATED", "Credential was not sent or was of an unsupported type"
                    )
                names = {name: unquote(value) for name, value in match.groupdict().items()}
                answer = handler(
                    self, Request(request.method, request.path, request.query, request.body, names)
                )
                return answer if isinstance(answer, Answer) else Answer(answer)
        self.unknown.append(f"{request.method} {request.path}")
        raise RefusedRequest(501, "NOT_IMPLEMENTED", f"{request.method} {request.path} isn't known here")


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    # A client that finds the queue full tries again after a second.
    request_queue_size = 128


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # One packet for each answer: between two of them the client's system waits 40 ms.
        wbufsize = -1
        disable_nagle_algorithm = True

        def serve(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            request = Request(self.command, parts.path, query, self.content())
            answer = server.answer(request, self.headers.get("Authorization", ""))
            if server.loses(request):
                self.close_connection = True
                return
            body = answer.body
            if not isinstance(body, bytes):
                body = b"" if body is None else json.dumps(body).encode()
            self.send_response(answer.status)
            kind = "application/octet-stream" if isinstance(answer.body, bytes) else "application/json"
            for name, value in {"Content-Type": kind, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = serve

        def content(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            whole = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing; `Server.asked` has it."""

    return Handler
