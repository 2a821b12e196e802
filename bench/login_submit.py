"""`hp-submit --cluster` beside `ssh host sbatch`, over lines of several delays, through a real sshd.

Both submit the same script to a Slurm of shell scripts, so that what differs is the way there. Ours is run
with a list of login nodes, and once more asking the site's service first, over the same line, which it is
to be. The service is a stand-in that answers at once: how long the real one takes is another part's matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.remote.rig import Rig, rig  # type: ignore[import-untyped]

DELAYS_MS = (0, 50, 150)
"""Round trips."""
MORE_SECONDS, MORE_ROUND_TRIPS = 0.5, 3
TIMES, QUICK_TIMES = 9, 3
PARAMIKO_MORE = 0.2


@dataclass(frozen=True)
class Submission:
    """Medians over one line.

    Attributes:
        round_trip_ms: the line's.
        ssh_s, ours_s: from the command's start to its end.
        more_s: how much longer ours takes.
        asking_more_s: how much longer when the service is asked first.
        allowed_s: how much longer it may take.
    """

    round_trip_ms: int
    ssh_s: float
    ours_s: float
    more_s: float
    asking_more_s: float
    allowed_s: float


def submissions(quick: bool) -> list[Submission]:
    """Measure each delay."""
    times = QUICK_TIMES if quick else TIMES
    with rig() as cluster:
        login = cluster.start("login1")
        (cluster.home / "job.sh").write_text("#!/bin/bash\nhostname\n")
        return [_measured(cluster, login.port, delay, times) for delay in DELAYS_MS]


def _measured(cluster: Rig, port: int, delay_ms: int, times: int) -> Submission:
    with delayed(port, delay_ms / 2000) as near, service() as api, delayed(api, delay_ms / 2000) as near_api:
        cluster.know(near)
        cluster.configure({"login1": near})
        config = str(cluster.home / ".ssh/config")
        ssh = ["ssh", "-F", config, "login1", "sbatch", "--parsable", "/home/lab1/hp-runs/x/job.sh"]
        theirs, mine = _medians(cluster, ssh, times)
        _name_service(cluster, near_api)
        before, asking = _medians(cluster, ssh, times)
    allowed = MORE_SECONDS + MORE_ROUND_TRIPS * delay_ms / 1000
    more = (round(mine - theirs, 3), round(asking - before, 3))
    return Submission(delay_ms, round(theirs, 3), round(mine, 3), *more, allowed)


def _medians(cluster: Rig, ssh: Sequence[str], times: int) -> tuple[float, float]:
    """Seconds of ssh and of ours, in turn, so that whatever else the machine does meets both."""
    ours = [sys.executable, "-m", "hpctools.cli.hp_submit", "--cluster", "uni", "--parsable", "job.sh"]
    pairs = [(_seconds(cluster, ssh), _seconds(cluster, ours)) for _ in range(times + 1)][1:]
    theirs, mine = (statistics.median(each) for each in zip(*pairs, strict=True))
    return theirs, mine


def _name_service(cluster: Rig, port: int) -> None:
    """The person's clusters.yaml names the site's service, and they have a token."""
    file = cluster.home / ".config/hpctools/clusters.yaml"
    text = file.read_text().replace("    login_nodes:", f"    api: http://127.0.0.1:{port}\n    login_nodes:")
    file.write_text(text)
    (cluster.home / ".hpctools").mkdir(exist_ok=True)
    (cluster.home / ".hpctools/token").write_text("a-token\n")


class _Places(BaseHTTPRequestHandler):
    """Says that it is to be login1, whoever asks."""

    asked = 0

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"node": "login1", "address": "login1", "why": "", "others": []}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing is to be read of it."""


@contextmanager
def service() -> Iterator[int]:
    """A service that has been asked when this ends; its port."""
    before = _Places.asked
    with ThreadingHTTPServer(("127.0.0.1", 0), _Places) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)
    assert _Places.asked > before, "nobody asked the service where to go"


def _seconds(cluster: Rig, argv: Sequence[str]) -> float:
    begin = time.monotonic()
    done = subprocess.run(
        argv, cwd=cluster.home, env=cluster.environment, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return time.monotonic() - begin


def start_seconds(times: int = 7) -> float:
    """How much longer hp-submit takes to import for another cluster than paramiko alone, in CPU seconds."""
    alone = _import_seconds("paramiko", times)
    modules = "hpctools.cli.hp_submit, hpctools.cli.remote_submission, hpctools.remote.sending"
    return _import_seconds(modules, times) - alone


def _import_seconds(modules: str, times: int) -> float:
    code = f"import time, {modules}; print(time.process_time())"
    found = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(times)
    ]
    return min(float(each.stdout) for each in found)


@contextmanager
def delayed(target: int, seconds: float) -> Iterator[int]:
    """A port that leads to another one; every byte takes so long, in each direction."""
    loop = asyncio.new_event_loop()
    ready: list[int] = []
    begun = threading.Event()

    async def begin() -> None:
        server = await asyncio.start_server(lambda r, w: _pass_on(r, w, target, seconds), "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        begun.set()

    loop.create_task(begin())  # noqa: RUF006 - the loop holds it until it has run
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    assert begun.wait(10)
    try:
        yield ready[0]
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter, target: int, seconds: float
) -> None:
    # A connection takes a round trip before its first byte.
    await asyncio.sleep(2 * seconds)
    far_in, far_out = await asyncio.open_connection("127.0.0.1", target)
    await asyncio.gather(_carry(near_in, far_out, seconds), _carry(far_in, near_out, seconds))


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
    loop = asyncio.get_running_loop()

    def later(action: Callable[[], object]) -> None:
        loop.call_later(seconds, action)

    with contextlib.suppress(OSError):  # who hangs up first, does
        while data := await source.read(65536):
            later(lambda data=data: None if sink.is_closing() else sink.write(data))  # type: ignore[misc]
    later(sink.close)
