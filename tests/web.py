"""A small web server for one test, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        path: with its query.
        headers: as they were spelled.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What is answered."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def serving(answer: Callable[[Asked], Answer], tls: SSLContext | None = None) -> Iterator[str]:
    """Serve until the end of the block; gives the address.

    Args:
        tls: serve https.
        answer: is called in a thread of its own for each request; who has asked may have gone by its end.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            told = answer(Asked(self.command, self.path, dict(self.headers), self.rfile.read(length)))
            try:
                self._say(told)
            except OSError:
                self.close_connection = True

        do_POST = do_GET  # noqa: N815 - as http.server names it

        def _say(self, told: Answer) -> None:
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if told.status != 204:
                self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(30)
