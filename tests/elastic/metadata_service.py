"""A stand-in of the instance metadata service that speaks IMDSv2 over HTTP."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service(ThreadingHTTPServer):
    """Documents by path; only who shows a token that is still valid gets one.

    Attributes:
        tokens: those that are valid, oldest first; each agent has one of its own.
        concerned: tokens of those that the documents are for; None: of all.
    """

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.tokens: dict[str, None] = {}
        self.concerned: set[str] | None = None
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_PUT(self) -> None:
        valid = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") == "21600"
        token = f"token-{len(self.server.requests)}"
        self.server.tokens[token] = None
        self._answer(200 if self.path == "/latest/api/token" and valid else 400, token)

    def do_GET(self) -> None:
        token, concerned = self.headers.get("X-aws-ec2-metadata-token"), self.server.concerned
        if token not in self.server.tokens:
            self._answer(401, "")
        elif self.path in self.server.documents and (concerned is None or token in concerned):
            self._answer(200, self.server.documents[self.path])
        else:
            self._answer(404, "<html>404 - Not Found</html>")

    def _answer(self, status: int, body: str) -> None:
        self.server.requests.append(f"{self.command} {self.path} {status}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Tests have no use for it."""


@contextlib.contextmanager
def serving() -> Iterator[Service]:
    """A service that announces nothing."""
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)


def spot_at(seconds: float) -> str:
    at = datetime.fromtimestamp(time.time() + seconds, timezone.utc)
    return json.dumps({"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")})
