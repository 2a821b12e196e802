"""Login nodes with real sshds, our PAM stack and agents, and the service that counts their sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from api.db.engine import connect
from api.db.migrate import upgrade
from api.services import tokens
from hpctools.login import sshd
from hpctools.login.haproxy import Server, Timing, configuration
from hpctools.sandbox import ports
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.site.login_haproxy import HaProxy
from tests.system.harness import Cluster, until
from tests.system.pam_rig import ADMIN, SETTINGS, SSHD_CONFIG, Rig

ROOT = Path(__file__).parents[2]
LIMIT = 2
FAKETIME = "faketime/libfaketimeMT.so.1"
"""Below the machine's folder in /usr/lib."""
SILENT_SECONDS = 5
SILENT = f"silent_after: 00:00:0{SILENT_SECONDS}"
# Each login node has a process namespace, with a /proc of its own. Agents know sessions by sshd's name, so it
# has no other one here, and its PAM stack takes the place of the usual one. Where its clock is off, its
# agent loads libfaketime (sshd's unprivileged children may not; PAM's program asks for no time of day), and
# the kernel tells another boot time, which it reckons from its clock.
NODE = """\
set -e
hostname "$1"; mount -t proc proc /proc; mount --bind "/etc/pam.d/sshd-$1" /etc/pam.d/sshd
if [ "${FAKETIME:-}" ]; then
  boot=$(sed -n 's/^btime //p' /proc/stat)
  sed "s/^btime .*/btime $((boot + FAKETIME))/" /proc/stat >"/tmp/$1/stat"
  mount --bind "/tmp/$1/stat" /proc/stat
fi
main='from hpctools.cli.hp_login_agent import main; raise SystemExit(main())'
LD_PRELOAD="${FAKETIME_LIBRARY:-}" "$2" -c "$main" --config "$3" &
echo $! >"$4"; shift 4; exec "$@"
"""


class Service:
    """hpctools-api on this machine, which may be ended and begun again."""

    def __init__(self, folder: Path, site: str) -> None:
        self.folder = folder
        self.site = folder / "site.yaml"
        short = f"max_sessions_per_user: {LIMIT}\n  {SILENT}"
        self.site.write_text(site.replace("max_sessions_per_user: 4", short))
        self.url = f"sqlite:///{folder}/api.sqlite"
        engine = connect(self.url)
        upgrade(engine)
        self.node_token = tokens.create(engine, "nodes", "root", 0, None, ("login",))
        self.admin_token = tokens.create(engine, "admin", None, 0)
        self.own_token = tokens.create(engine, "laptop", "cv", 0, user="cv2")
        engine.dispose()
        self.port = ports.choose(["api"])["api"]
        self.process: subprocess.Popen[bytes] | None = None

    def replace_node_token(self) -> None:
        """Nodes have another token from now on, and theirs no longer holds."""
        engine = connect(self.url)
        tokens.revoke(engine, "nodes", int(time.time()))
        self.node_token = tokens.create(engine, "next-nodes", "root", 0, None, ("login",))
        engine.dispose()

    @contextmanager
    def patient(self) -> Iterator[None]:
        """With nodes that count for minutes without a word, as they may be without one on a busy machine."""
        text = self.site.read_text()
        try:
            self._write_site(text.replace(SILENT, "silent_after: 00:05:00"))
            yield
        finally:
            self._write_site(text)

    @contextmanager
    def department_limit(self, sessions: int) -> Iterator[None]:
        """With so many sessions for all people of a department together."""
        text, user_limit = self.site.read_text(), f"max_sessions_per_user: {LIMIT}\n"
        assert user_limit in text
        limit = f"{user_limit}  max_sessions_per_department: {sessions}\n"
        try:
            self._write_site(text.replace(user_limit, limit))
            yield
        finally:
            self._write_site(text)

    def _write_site(self, text: str) -> None:
        """At once: the service reads it at any time."""
        new = self.site.with_suffix(".new")
        new.write_text(text)
        new.replace(self.site)

    def start(self) -> None:
        """Begin; it answers when this returns."""
        told = {"DATABASE_URL": self.url, "SITE": str(self.site), "RECONCILE_EVERY": "0", "WATCH_EVERY": "0"}
        environment = {**os.environ, **{f"HPCTOOLS_API_{name}": value for name, value in told.items()}}
        with (self.folder / "api.log").open("ab") as log:
            argv = [sys.executable, "-m", "api", "serve", "--port", str(self.port)]
            self.process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=log, stderr=log)
        until(lambda: self._answers() or None, 60)

    def stop(self) -> None:
        """End at once, as a machine does that loses power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def _answers(self) -> bool:
        with suppress(OSError):
            self.ask("GET", "/v1/login/nodes")
            return True
        return False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What an administrator is answered; of a refusal its detail."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.admin_token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)["detail"]

    def sessions(self, user: str) -> list[tuple[str, int]]:
        """Nodes and numbers of somebody's sessions that the service knows."""
        found = self.ask("GET", f"/v1/login/sessions?user={user}")["sessions"]
        return [(each["node"], each["id"]) for each in found]


class LoginRig(Rig):
    """A cluster with login nodes in process namespaces of their own.

    Attributes:
        every: seconds between two reports of an agent.
        settings: of sshd, beside those of its file.
        before_all: what a node's shell does first.
        api_port: where agents ask the service.
    """

    every = 1.0
    settings: ClassVar[Mapping[str, str]] = sshd.SETTINGS
    before_all: ClassVar[str] = ""
    api_port = 0

    def __init__(self, cluster: Cluster, service: Service) -> None:
        super().__init__(cluster)
        self.service = service
        self.tree = cluster.sandbox.layout.tree
        own = [line for line in SSHD_CONFIG.splitlines() if not line.startswith("MaxStartups")]
        lines = (*own, *(f"{name} {value}" for name, value in self.settings.items()))
        (self.tree / "etc/ssh/sshd_login").write_text("".join(f"{line}\n" for line in lines))

    def serve_login(self, node: str, when_unreachable: str = "open", clock_off_by: int = 0) -> None:
        """A login node: its stack, its agent, its sshd.

        Args:
            clock_off_by: seconds by which its agent and its kernel have another time.
        """
        service, folder = f"sshd-{node}", self.tree / "tmp" / node
        folder.mkdir(mode=0o755)
        self.ports[service] = port = ports.choose([service])[service]
        self._settings(node, folder, when_unreachable)
        self.cluster.inside("cp", "/etc/pam.d/sshd", f"/etc/pam.d/{service}")
        words = [
            "--role",
            "login",
            "--sessions",
            f"/run/sessions-{node}",
            "--settings",
            f"/tmp/{node}/pam.json",
        ]
        self.installer("install", service, *words)
        argv = ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_login", "-p", str(port)]
        about = [node, sys.executable, f"/tmp/{node}/agent.yaml", f"/tmp/{node}/agent.pid"]
        alone = ["unshare", "--uts", "--pid", "--fork", "--mount", "--kill-child"]
        told = [f"HPCTOOLS_API=http://127.0.0.1:{self.api_port or self.service.port}", f"PYTHONPATH={ROOT}"]
        told += [f"HPCTOOLS_API_TOKEN_FILE=/tmp/{node}/token", f"PATH={os.environ['PATH']}"]
        if clock_off_by:
            (library,) = Path("/usr/lib").glob(f"*/{FAKETIME}")
            told += [f"FAKETIME={clock_off_by:+d}", f"FAKETIME_LIBRARY={library}"]
            told += ["FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1"]
        script = ["sh", "-c", self.before_all + NODE, "node"]
        argv = ["env", *told, *alone, *script, *about, *argv, *self._named(service)]
        with (self.cluster.sandbox.layout.logs / f"{service}.log").open("wb") as log:
            inside = self.cluster.sandbox.command(argv)
            self.processes.append(subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        until(lambda: not ports.is_free(port) or None, 20)
        until(lambda: node in self.up() or None, 60)

    @contextmanager
    def reporting_every(self, seconds: float) -> Iterator[None]:
        """With agents, of login nodes that are made meanwhile, that look and report so seldom."""
        self.every = seconds
        try:
            yield
        finally:
            del self.every  # the class's again

    def kill_login(self, node: str) -> None:
        """End all that runs on a login node at once, as a machine does that loses power."""
        self.cluster.inside("pkill", "-9", "-f", _all_of(node))

    def on_login(self, node: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Run something of root's on a login node, beside its sshd, until the rig ends."""
        of_all = self.cluster.inside("pgrep", "-o", "-f", _all_of(node)).stdout.strip()
        first = self.cluster.inside("pgrep", "-P", of_all).stdout.split()[0]
        words = self.cluster.sandbox.command(["nsenter", "-t", first, "--pid", "--mount", "--uts", *argv])
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def clock_of(self, node: str) -> int:
        """What time it is for a node's agent, Unix seconds: in the environment that it has."""
        agent = f"^[^ ]*python[^ ]* -c .*/tmp/{node}/agent.yaml"
        date = """xargs -0 -a "/proc/$(pgrep -n -f "$1")/environ" sh -c 'exec env -i "$@" date +%s' sh"""
        return int(self.cluster.inside("sh", "-c", date, "sh", agent).stdout)

    def _settings(self, node: str, folder: Path, when_unreachable: str) -> None:
        login = {"sessions_per_user": LIMIT, "sessions": 0, "when_unreachable": when_unreachable}
        login["agent_socket"] = f"/tmp/{node}/agent.sock"
        access = {**SETTINGS["access"], "login": login}
        (folder / "pam.json").write_text(json.dumps({"access": access}))
        agent = {"node": node, "address": node, "administrators": {"users": [ADMIN]}}
        agent |= {"every": self.every, "check_port": 0, "drain_notice": 0.0}
        agent |= {"metrics_port": 0, "when_unreachable": when_unreachable, "socket": login["agent_socket"]}
        agent |= {"sshd_port": self.ports[f"sshd-{node}"]}
        agent |= {"state": f"/tmp/{node}", "unlimited_file": f"/tmp/{node}/unlimited", **self.besides(node)}
        (folder / "agent.yaml").write_text(json.dumps(agent))
        self.give_token(node)

    def besides(self, node: str) -> Mapping[str, object]:
        """What a node's agent is told beside that."""
        return {}

    def give_token(self, node: str) -> None:
        """Put the nodes' present token where a node's agent finds it."""
        file = self.tree / "tmp" / node / "token"
        file.touch(mode=0o600)
        file.write_text(self.service.node_token)

    def up(self) -> list[str]:
        """Nodes that the service has heard of lately."""
        nodes = self.service.ask("GET", "/v1/login/nodes")["nodes"]
        return [node["name"] for node in nodes if node["state"] == "up"]

    def until_known(self, user: str, count: int) -> None:
        """Wait until the service knows so many sessions of somebody."""
        until(lambda: len(self.service.sessions(user)) == count or None, 30)


@contextmanager
def login_nodes(
    folder: Path, site: Path, release: str, nodes: Mapping[str, str], kind: type[LoginRig] | None = None
) -> Iterator[LoginRig]:
    """A cluster with login nodes and the service, all of it ended at the end.

    Args:
        nodes: what each does when the service does not answer, `open` or `refuse`.
        kind: of the rig; None: the usual one.
    """
    sandbox, service, made = Sandbox(folder / "state"), Service(folder, site.read_text()), None
    try:
        up(sandbox, site, 2, lambda name, seconds: None, slurm=release)
        service.start()
        made = (kind or LoginRig)(Cluster(sandbox), service)
        for node, when_unreachable in nodes.items():
            made.serve_login(node, when_unreachable)
        yield made
    finally:
        if made:
            made.end()
        if service.process:
            service.stop()
        down(sandbox)


def _all_of(node: str) -> str:
    """A pattern of the process that all others of a login node end with."""
    return f"^unshare --uts.*/tmp/{node}/agent.yaml"


class EntranceRig(LoginRig):
    """Login nodes whose agents HAProxy asks."""

    def __init__(self, cluster: Cluster, service: Service, nodes: tuple[str, ...]) -> None:
        super().__init__(cluster, service)
        self.checks = ports.choose(nodes)

    def _settings(self, node: str, folder: Path, when_unreachable: str) -> None:
        super()._settings(node, folder, when_unreachable)
        path = folder / "agent.yaml"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"check_port": self.checks[node]}))

    def stand_before(self, folder: Path) -> None:
        """HAProxy, with the configuration that we render, in front of all."""
        port = ports.choose(["haproxy"])["haproxy"]
        servers = [Server(node, f"127.0.0.1:{self.ports[f'sshd-{node}']}") for node in self.checks]
        timing = Timing(check=1000, agent=200)
        text = configuration(HaProxy(port=port), servers, socket=str(folder / "admin.sock"), timing=timing)
        for node, server in zip(self.checks, servers, strict=True):
            line = f"server {node} {server.address}"
            text = text.replace(line, f"{line} agent-port {self.checks[node]}")
        (folder / "haproxy.cfg").write_text(text)
        with (folder / "haproxy.log").open("wb") as log:
            argv = ["haproxy", "-db", "-f", folder / "haproxy.cfg"]
            self.processes.append(subprocess.Popen(argv, stdout=log, stderr=log))
        self.ports["haproxy"] = port
        until(lambda: not ports.is_free(port) or None, 20)
        until((folder / "admin.sock").exists, 20)  # it may listen for people first

    def reached(self, count: int = 3) -> set[str]:
        """Which nodes people get to who come one after the other."""
        return {self.ssh("haproxy", "nlp2", "hostname").stdout.strip() for _ in range(count)}
