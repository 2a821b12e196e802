"""`hp-submit --cluster` beside `ssh host sbatch`, over lines of several delays, through a real sshd.

Both submit the same script to a Slurm of shell scripts, so that what differs is the way there. Ours is run
with a list of login nodes, and once more asking the site's service first, over the same line, which it is
to be. The service is a stand-in that speaks TLS, by a certificate that the laptop is told to trust
(docs/laptop.md), and answers at once: how long the real one takes is another part's matter.

In a network of our own each packet is delayed, by the kernel's netem where it has that, else by a TUN
device (`bench/wire.py`). Where there is neither, a proxy delays what is said. Round trips are counted by the
proxy in any case: time alone does not tell them from slowness.

python -m bench.login_submit DELAY_MS TIMES BY    one delay, on this network as it is; prints a line of JSON
"""

from __future__ import annotations

import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.line import Line, delayed
from bench.tls import certificate
from tests.remote.rig import Rig, rig  # type: ignore[import-untyped]

DELAYS_MS = (0, 50, 150)
"""Round trips."""
MORE_SECONDS, MORE_ROUND_TRIPS = 0.5, 3
TIMES, QUICK_TIMES = 9, 3
PARAMIKO_MORE = 0.2
COUNTED_SECONDS = 0.05
"""One way, when round trips are counted."""
_NETWORK_SECONDS = 600
_NETEM, _WIRE, _PROXY = "netem", "a TUN device", "a proxy"
_NETEM_DELAY = 'ip link set lo up && tc qdisc add dev lo root netem delay "${0}s" && exec "$@"'
_Road = Callable[[int], AbstractContextManager[Line]]
"""To a port, over a line."""


@dataclass(frozen=True)
class Submission:
    """Medians over one line.

    Attributes:
        round_trip_ms: the line's.
        by: who delays it.
        ssh_s, ours_s: from the command's start to its end.
        more_s: how much longer ours takes.
        asking_more_s: how much longer when the service is asked first, over TLS 1.3.
        asking_tls12_more_s: the same over TLS 1.2.
        late: how many of its answers came too late.
        allowed_s: how much longer it may take.
    """

    round_trip_ms: int
    by: str
    ssh_s: float
    ours_s: float
    more_s: float
    asking_more_s: float
    asking_tls12_more_s: float
    late: int
    allowed_s: float


@dataclass(frozen=True)
class RoundTrips:
    """How many were waited for, one after the other, that of a connection included."""

    ssh: int
    ours: int
    asking: int


def submissions(quick: bool) -> list[Submission]:
    """Measure each delay."""
    times = QUICK_TIMES if quick else TIMES
    by = next((by for by in (_NETEM, _WIRE) if _own_network(by, 0.001, ["true"]).returncode == 0), _PROXY)
    if by != _PROXY:
        return [_in_own_network(by, delay, times) for delay in DELAYS_MS]
    with _cluster() as cluster:
        return [_measured(cluster, _by_proxy(delay), delay, times, by) for delay in DELAYS_MS]


def round_trips() -> RoundTrips:
    """Count them once."""
    with _cluster() as cluster, service() as api:
        with _counted(cluster) as line:
            _run(cluster, _ssh(cluster))
        with _counted(cluster) as mine:
            _run(cluster, OURS)
        with _counted(cluster) as asking, delayed(api.port, COUNTED_SECONDS) as place:
            name_service(cluster, place.port)
            late = _run(cluster, OURS, api.authorities).late
    assert not late, "the service's answer was not waited for"
    return RoundTrips(line.round_trips, mine.round_trips, asking.round_trips + place.round_trips)


@contextmanager
def _counted(cluster: Rig) -> Iterator[Line]:
    """The way to the login node from now on."""
    with delayed(cluster.logins[0].port, COUNTED_SECONDS) as line:
        cluster.know(line.port)
        cluster.configure({"login1": line.port})
        yield line


def _own_network(by: str, one_way: float, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run this where each packet takes so many seconds."""
    netem = ["sh", "-c", _NETEM_DELAY, str(one_way)]
    delayed_by = netem if by == _NETEM else [sys.executable, "-m", "bench.wire", str(one_way)]
    words = ["unshare", "--net", "--", *delayed_by, *argv]
    return subprocess.run(words, capture_output=True, text=True, timeout=_NETWORK_SECONDS, check=False)


def _in_own_network(by: str, delay_ms: int, times: int) -> Submission:
    # Every packet is delayed once, so that half a round trip is what it waits.
    argv = [sys.executable, "-m", "bench.login_submit", str(delay_ms), str(times), by]
    done = _own_network(by, delay_ms / 2000, argv)
    assert done.returncode == 0, done.stderr
    return Submission(**json.loads(done.stdout))


@contextmanager
def _cluster() -> Iterator[Rig]:
    with rig() as made:
        made.start("login1")
        (made.home / "job.sh").write_text("#!/bin/bash\nhostname\n")
        yield made


def _by_proxy(delay_ms: int) -> _Road:
    return lambda port: delayed(port, delay_ms / 2000)


@contextmanager
def _as_it_is(port: int) -> Iterator[Line]:
    yield Line(port)


def _measured(cluster: Rig, road: _Road, delay_ms: int, times: int, by: str) -> Submission:
    with road(cluster.logins[0].port) as near:
        cluster.know(near.port)
        cluster.configure({"login1": near.port})
        plain = _medians(cluster, times)
        newer = _asking(cluster, near.port, road, times, ssl.TLSVersion.TLSv1_3)
        older = _asking(cluster, near.port, road, times, ssl.TLSVersion.TLSv1_2)
    return Submission(
        delay_ms,
        by,
        round(plain.ssh, 3),
        round(plain.ours, 3),
        plain.more,
        newer.more,
        older.more,
        newer.late + older.late,
        MORE_SECONDS + MORE_ROUND_TRIPS * delay_ms / 1000,
    )


def _asking(cluster: Rig, port: int, road: _Road, times: int, newest: ssl.TLSVersion) -> _Medians:
    """The same where the service is asked first."""
    with service(newest) as api, road(api.port) as near:
        cluster.configure({"login1": port})
        name_service(cluster, near.port)
        return _medians(cluster, times, api.authorities)


OURS = [sys.executable, "-m", "hpctools.cli.hp_submit", "--cluster", "uni", "--parsable", "job.sh"]


def _ssh(cluster: Rig) -> list[str]:
    script = "/home/lab1/hp-runs/x/job.sh"
    return ["ssh", "-F", str(cluster.home / ".ssh/config"), "login1", "sbatch", "--parsable", script]


@dataclass(frozen=True)
class _Run:
    """A command: how long it took, and whether the service's answer was too late for it."""

    seconds: float
    late: bool


@dataclass(frozen=True)
class _Medians:
    """Seconds of ssh and of ours, and how many answers came too late."""

    ssh: float
    ours: float
    late: int

    @property
    def more(self) -> float:
        return round(self.ours - self.ssh, 3)


def _medians(cluster: Rig, times: int, authorities: Path | None = None) -> _Medians:
    """Of ssh and of ours, in turn, so that whatever else the machine does meets both."""
    ssh = _ssh(cluster)
    pairs = [(_run(cluster, ssh), _run(cluster, OURS, authorities)) for _ in range(times + 1)][1:]
    theirs, mine = (statistics.median(run.seconds for run in runs) for runs in zip(*pairs, strict=True))
    return _Medians(theirs, mine, sum(run.late for _, run in pairs))


def name_service(cluster: Rig, port: int) -> None:
    """The person's clusters.yaml names the site's service, and they have a token."""
    file = cluster.home / ".config/hpctools/clusters.yaml"
    text = file.read_text().replace(
        "    login_nodes:", f"    api: https://127.0.0.1:{port}\n    login_nodes:"
    )
    file.write_text(text)
    (cluster.home / ".hpctools").mkdir(exist_ok=True)
    token = cluster.home / ".hpctools/token"
    token.touch(mode=0o600)
    token.write_text("a-token\n")


class _Places(BaseHTTPRequestHandler):
    """Says that it is to be login1, whoever asks."""

    asked = 0
    wbufsize = -1  # head and body are one packet, as of the real one

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


@dataclass(frozen=True)
class Api:
    """A service: its port, and what $SSL_CERT_FILE is to be."""

    port: int
    authorities: Path


@contextmanager
def service(newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> Iterator[Api]:
    """A service that has been asked when this ends."""
    before = _Places.asked
    with (
        tempfile.TemporaryDirectory(prefix="service-") as folder,
        ThreadingHTTPServer(("127.0.0.1", 0), _Places) as server,
    ):
        made = certificate(Path(folder))
        # Handshakes are the matter of each connection's own thread.
        server.socket = made.context(newest).wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Api(server.server_address[1], made.authorities)
        finally:
            server.shutdown()
            thread.join(10)
    assert _Places.asked > before, "nobody asked the service where to go"


def _run(cluster: Rig, argv: Sequence[str], authorities: Path | None = None) -> _Run:
    trusted = {"SSL_CERT_FILE": str(authorities)} if authorities else {}
    environment = {**cluster.environment, **trusted}
    begin = time.monotonic()
    done = subprocess.run(
        argv, cwd=cluster.home, env=environment, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return _Run(time.monotonic() - begin, b"did not answer in time" in done.stderr)


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


if __name__ == "__main__":
    with _cluster() as here:
        asked_ms, asked_times = map(int, sys.argv[1:3])
        print(json.dumps(asdict(_measured(here, _as_it_is, asked_ms, asked_times, sys.argv[3]))))
