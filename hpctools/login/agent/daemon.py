"""The agent as a daemon: its parts put together, and the loop."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import BaseServer

from hpctools.errors import UnreachableError
from hpctools.login.agent import address
from hpctools.login.agent.administrators import AdministratorCheck
from hpctools.login.agent.agent import Agent, Ended
from hpctools.login.agent.capped import started
from hpctools.login.agent.caring import Carer, lift_left
from hpctools.login.agent.door import Door
from hpctools.login.agent.drained import DrainFile, Word
from hpctools.login.agent.ends import Ends
from hpctools.login.agent.listening import checks_server, door_server, people_server, people_socket
from hpctools.login.agent.moving import Mover
from hpctools.login.agent.own_sshd import Knock, OwnSshd
from hpctools.login.agent.processes import check_seen
from hpctools.login.agent.reporting import Reporter, Self, Service
from hpctools.login.agent.sample import Sampler
from hpctools.login.agent.settings import Settings
from hpctools.login.agent.slices import find_slices
from hpctools.login.agent.sources import Sources
from hpctools.login.agent.telling import end, tell, typed_at
from hpctools.login.placement import Policy

_log = logging.getLogger("hpctools.login")


@dataclass(frozen=True)
class NodeHands:
    """What is done on this very node (`hpctools.login.agent.agent.Hands`)."""

    node: str
    unlimited: Path

    def tell(self, terminals: Iterable[str], message: str, owner: int | None = None) -> object:
        """Write on terminals; on those of this account only, when one is given."""
        return tell(terminals, message, self.node, owner=owner)

    def typed_at(self, terminals: Iterable[str]) -> Mapping[str, float]:
        """When something was last typed."""
        return typed_at(terminals)

    def end(self, what: Ended) -> bool:
        """End what a process holds."""
        return end(what.pid, what.started)

    def lifts_limits(self) -> bool:
        """Whether the break-glass file is there."""
        return self.unlimited.exists()


def make_agent(settings: Settings, service: Service | None) -> Agent:
    """An agent of this node that does not run yet."""
    name = settings.node or socket.gethostname().partition(".")[0]
    drains = DrainFile(Path(settings.state) / "drain.json")
    administrators = AdministratorCheck(settings.administrators)
    agent = Agent(
        name,
        Policy(settings.balance_on, most_sessions=settings.most_sessions),
        Sampler(time.monotonic, time.time, Sources().read),
        Reporter(
            Self(name, address.finder(settings, name, os.environ), administrators), service, time.monotonic
        ),
        drains,
        NodeHands(name, Path(settings.unlimited_file)),
        administrators,
        settings.idle,
        drain_notice=settings.drain_notice,
        sessions_per_user=settings.sessions_per_user,
        unsure=administrators.is_unsure,
    )
    if settings.sshd_port:
        agent.own_sshd = OwnSshd(Knock(settings.sshd_port, time.monotonic).ask)
    if settings.care is not None:
        slices, limited = find_slices(), _limited(settings)
        # Without systemd all of a person's programs are put into the limit anyway.
        mover = Mover(settings.care.services, administrators) if slices.adopts else None
        agent.carer = Carer(settings.care, slices, agent.tell_user, administrators, limited, mover=mover)
    return agent


def _limited(settings: Settings) -> Path:
    return Path(settings.state) / "limited.json"


def serve(settings: Settings, service: Service | None, quick: Service | None = None) -> None:
    """Run until SIGTERM or SIGINT.

    Nothing is told or written before the ports and sockets are its own: another agent may run here.

    Args:
        service: None where the site has none.
        quick: the same for PAM, which waits for three seconds; `service` itself when None.

    Raises:
        UnreachableError: a port or a socket cannot be had; the service has heard nothing then.
        HpctoolsError: the processes of others are hidden from it.
    """
    check_seen()
    agent = make_agent(settings, service)
    stopping = _stop_at_signals(agent)
    with ExitStack() as stack:
        servers = _bound(stack, settings, agent, Door(agent, quick or service, settings.when_unreachable))
        if service is not None:
            stack.enter_context(_ends_heard(agent))
        else:
            _forget_service(agent)
        _look(agent)
        stack.enter_context(_answered(servers))
        _log.info("answers on %s", ", ".join(str(server.server_address) for server in servers))
        stack.enter_context(_limits_lifted(settings, agent))
        _log.info("%s: the agent serves", agent.name)
        while not stopping:
            agent.wake.wait(_pause(settings, agent))
            agent.wake.clear()
            if not stopping:
                _look(agent)


def _pause(settings: Settings, agent: Agent) -> float:
    """Seconds until the next look; the site file may have another heartbeat since the settings were made."""
    return min(settings.every, max(1.0, agent.reporter.heartbeat / 3))


@contextmanager
def _limits_lifted(settings: Settings, agent: Agent) -> Iterator[None]:
    """Nobody stays limited by an agent that no longer runs, also where this one has no care."""
    if agent.carer is not None:
        agent.carer.release()
    else:
        lift_left(find_slices(), _limited(settings))
    try:
        yield
    finally:
        if agent.carer is not None:
            agent.carer.release()


@contextmanager
def _ends_heard(agent: Agent) -> Iterator[None]:
    agent.ends = ends = Ends(agent.leave)
    ends.start()
    try:
        yield
    finally:
        agent.ends = None
        ends.stop()


def _look(agent: Agent) -> None:
    try:
        agent.look()
    except Exception:  # noqa: BLE001
        # Somebody who drains the node, or wants in, still needs an answer.
        _log.exception("a look at the node failed; the next one follows")


def _stop_at_signals(agent: Agent) -> list[int]:
    stopping: list[int] = []

    def stop(number: int, _: object) -> None:
        stopping.append(number)
        agent.wake.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    return stopping


def _bound(stack: ExitStack, settings: Settings, agent: Agent, door: Door) -> list[BaseServer]:
    """All that this agent answers on, its own until the stack ends; who connects waits until it is started.

    Raises:
        UnreachableError: another has one of them.
    """
    servers = []
    for where, make in _ways_in(settings, agent, door).items():
        try:
            servers.append(make())
        except OSError as error:
            raise UnreachableError(
                f"the agent cannot listen on {where}: {error.strerror or error}",
                "see whether another one runs (systemctl status hp-login-agent), or change its ports",
            ) from None
        stack.callback(servers[-1].server_close)
    return servers


def _ways_in(settings: Settings, agent: Agent, door: Door) -> Mapping[str, Callable[[], BaseServer]]:
    """How each is made, by its name; ports first: who has not got them leaves the sockets of who has."""
    # prometheus-client is asked for here only: other commands need the module without it.
    from hpctools.login.agent.figures import Figures
    from hpctools.login.agent.metrics import metrics_server

    checks = (settings.check_address, settings.check_port)
    metrics = (settings.metrics_address, settings.metrics_port)
    root = Path(settings.socket)
    people = people_socket(root)
    return {
        f"port {checks[1]} (check_port)": lambda: checks_server(checks, agent.check),
        f"port {metrics[1]} (metrics_port)": lambda: metrics_server(*metrics, Figures(agent)),
        str(root): lambda: door_server(root, door.answer),
        str(people): lambda: people_server(people, door.answer),
    }


@contextmanager
def _answered(servers: Iterable[BaseServer]) -> Iterator[None]:
    """Whoever connects is answered."""
    with ExitStack() as stack:
        for server in servers:
            stack.callback(started(server).shutdown)
        yield


def _forget_service(agent: Agent) -> None:
    """What one said that the site no longer has counts no more: nobody could take it back."""
    with suppress(OSError):
        agent.drain_file.hear(service=Word())
