"""A real S3 server (moto's) with real faults, for this process and those that it starts."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

BUCKET = "training"
ENDED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Any]


class Server:
    """S3 with a list of what was asked, and a rule which requests fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.fails: Callable[[str, str, int], bool] = lambda method, path, number: False
        self.failure = "503 Slow Down"  # which clients try again
        self.ended = ""  # an access key that is valid no more
        self._s3: Wsgi = DomainDispatcherApplication(create_backend_app)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._http = make_server("127.0.0.1", 0, self, threaded=True)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.asked.append((method, path))
        if self.ended and f"Credential={self.ended}/" in environ.get("HTTP_AUTHORIZATION", ""):
            return self._refused(environ, start_response, "400 Bad Request", ENDED)
        if self.fails(method, path, len(self.asked)):
            return self._refused(environ, start_response, self.failure, b"")
        return self._s3(environ, start_response)

    def _refused(
        self, environ: dict[str, Any], start_response: Callable[..., Any], status: str, body: bytes
    ) -> list[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(status, [("Content-Length", str(len(body))), ("Connection", "close")])
        return [body]

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def bucket_of(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty bucket `training` at the server, which boto3 finds by the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": server.url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = boto3.resource("s3").create_bucket(Bucket=BUCKET)
    server.asked.clear()
    try:
        yield
    finally:
        server.fails = lambda method, path, number: False
        bucket.objects.all().delete()
        bucket.delete()
