"""A moto of one's own for tests of HyperPod: a client's view of it, and a clock that does not wait."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hpctools.hyperpod.operations.aws import Aws, connect
from hpctools.hyperpod.operations.watch import Progress, Watch

START_SECONDS = 60


@dataclass
class Server:
    """moto at an address."""

    url: str

    def post(self, path: str, value: Any = None) -> Any:
        request = Request(self.url + path, data=json.dumps(value).encode(), method="POST")
        with urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def rules(self, **rules: Any) -> None:
        self.post("/-/rules", rules)

    @property
    def log(self) -> list[str]:
        with urlopen(f"{self.url}/-/log", timeout=30) as answer:
            return list(json.loads(answer.read()))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_CONFIG_FILE": "/nonexistent/config",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
            "NO_PROXY": "127.0.0.1",
        }


@dataclass
class FastClock:
    """Time passes when somebody waits."""

    seconds: float = 0
    waits: int = 0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.waits += 1


@dataclass
class Told:
    """What was reported."""

    progress: list[Progress] = field(default_factory=list)

    def __call__(self, progress: Progress) -> None:
        self.progress.append(progress)

    def lines(self) -> list[str]:
        return [f"{each.what}: {each.state} {each.detail}".rstrip() for each in self.progress]


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("aws")
    port_file = folder / "port"
    log = (folder / "log").open("w")
    program = [sys.executable, str(Path(__file__).with_name("aws_server.py")), str(port_file)]
    process = subprocess.Popen(program, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "moto does not start"
            time.sleep(0.05)
        yield Server(f"http://127.0.0.1:{port_file.read_text()}")
    finally:
        process.terminate()
        process.wait(10)
        log.close()


@pytest.fixture
def server(_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """moto with nothing in it."""
    for variable in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in _server.environment.items():
        monkeypatch.setenv(variable, value)
    _server.post("/moto-api/reset")
    return _server


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def clock() -> FastClock:
    return FastClock()


@pytest.fixture
def watch(told: Told, clock: FastClock) -> Watch:
    return Watch(told, clock)


@pytest.fixture
def aws(server: Server) -> Aws:
    return connect("eu-central-1")
