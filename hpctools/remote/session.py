"""Requests to a cluster, over whichever login node answers."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import paramiko

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError
from hpctools.remote.channels import begin_command, opened
from hpctools.remote.clusters import FOLDER, Cluster
from hpctools.remote.host_keys import UnknownHost
from hpctools.remote.names import shown
from hpctools.remote.route import Connection, Road, connect
from hpctools.remote.transport import LostConnection, NoKeyTaken, TurnedAway
from hpctools.remote.wire import VERSION, Message, Wire, WireClosed, WireError

SILENT_SECONDS = 20.0
"""The cluster's side says something every five: a line that is silent for longer is dead."""
BEGIN_SECONDS = 60.0
"""Until it says its first word: a Python that starts from a cold file system."""
_END_SECONDS = 2.0
PAUSES = (0.0, 0.2, 1.0, 3.0, 8.0)
"""Seconds before each attempt."""
Got = TypeVar("Got")


class Refusal(RemoteError):
    """The cluster's hp-submit said no, in its own words, with its own exit code.

    Its name before them is left out: they are shown as ours.
    """

    def __init__(self, stderr: str, code: int) -> None:
        super().__init__(stderr.strip().removeprefix("hp-submit: "))
        self.exit_code = code


class SickNode(RemoteError):
    """A login node whose command ended before its first word, or that has no place for a submission.

    Attributes:
        node: its name.
    """

    def __init__(self, node: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.node = node


class Exchange:
    """One request and its answers, on a channel of its own.

    Attributes:
        unmade: the cluster says of a submission that nothing was submitted, nor can have been.
    """

    def __init__(self, connection: Connection, cluster: Cluster, request: Mapping[str, Any]) -> None:
        self.node = connection.settings.alias
        self.unmade = False
        self.transport = connection.transport
        self.cluster = cluster
        try:
            self.channel = opened(connection.transport, SILENT_SECONDS)
            self.channel.settimeout(BEGIN_SECONDS)
            with self._limited(BEGIN_SECONDS):
                begin_command(self.channel, cluster.line("--stdin-request"))
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._not_begun(error) from None
        self.wire = Wire(self._receive, self._send)
        self._greeted = False
        self._await_greeting()
        self.put({"version": VERSION, **request})

    def put(self, fields: Mapping[str, Any], data: bytes = b"") -> None:
        """Send a message.

        Raises:
            LostConnection: it cannot be sent.
        """
        try:
            self.wire.put(fields, data)
        except WireClosed as error:
            self._explain(error)

    def get(self) -> Message:
        """The next answer that says something.

        Raises:
            LostConnection: the connection broke.
            SickNode: hp-submit cannot run there, or can make no folder.
            Refusal: it said no on the cluster.
            HpctoolsError: the cluster's side says what went wrong.
        """
        try:
            message = self.wire.get()
            while "alive" in message.fields:
                message = self.wire.get()
        except WireError as error:
            self._explain(error)
        self.unmade = message.get("unmade") is True
        _raise_what_it_says(message, self.node)
        return message

    def result(self, hear: Callable[[object], None] = lambda said: None) -> Mapping[str, Any]:
        """The last answer; what else comes before it is passed over.

        Args:
            hear: is given what is said on the cluster meanwhile.
        """
        while "result" not in (message := self.get()).fields:
            if "said" in message.fields:
                hear(message["said"])
        found = message["result"]
        if not isinstance(found, Mapping):
            raise RemoteError(f"the answer of {self.node} is none", "install the same release on both sides")
        return found

    def close(self) -> None:
        """Give the channel back."""
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            self.channel.close()

    def _await_greeting(self) -> None:
        """Only then say anything: a shell that stands in hp-submit's place would obey the request's words."""
        try:
            self.wire.find_greeting()
        except WireError as error:
            if not (self.channel.closed or self.channel.eof_received):
                self._end_input()
            self._explain(error)
        self._greeted = True
        self.channel.settimeout(SILENT_SECONDS)

    def _end_input(self) -> None:
        """A shell that waits for commands ends then, which tells it from a line that is dead."""
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            self.channel.shutdown_write()
            self.channel.status_event.wait(_END_SECONDS)

    def _receive(self, size: int) -> bytes:
        try:
            return bytes(self.channel.recv(size))
        except (TimeoutError, paramiko.SSHException, OSError, EOFError):
            raise WireClosed("nothing came for too long") from None

    def _send(self, data: bytes) -> None:
        try:
            with self._limited(BEGIN_SECONDS):
                self.channel.sendall(data)
        except (TimeoutError, paramiko.SSHException, OSError, EOFError):
            raise WireClosed("the connection broke") from None

    @contextlib.contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        """Hang up on a host that takes nothing for so long: paramiko waits for ever there."""
        watch = threading.Timer(seconds, self.transport.close)
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def _explain(self, error: WireError) -> Any:
        """What it means that no answer came."""
        code = self._exit_code()
        if code in (126, 127) and not self._greeted:
            where = "" if self.cluster.command else f", neither on its PATH nor in {FOLDER}"
            raise SickNode(
                self.node,
                f"{self.node} has no `{self.cluster.called}`{where}: {self._said()}",
                "name it with its path: `command:` in clusters.yaml (docs/laptop.md)",
            ) from None
        if code == 0 and not self._greeted:
            raise SickNode(
                self.node,
                f"{self.node} ended the session before `{self.cluster.called}` began: {self._said()}",
                "does ~/.bashrc end with `exit` or start another shell there (`exec zsh`), or does the key "
                f"run a command of its own? try it: ssh {self.node} {self.cluster.called} --version",
            ) from None
        if code is not None and code > 0 and not self._greeted:
            raise SickNode(
                self.node,
                f"`{self.cluster.called}` on {self.node} failed with exit code {code}: {self._said()}",
                f"try it there: ssh {self.node} {self.cluster.called} --version",
            ) from None
        raise self._lost(error) from None

    def _exit_code(self) -> int | None:
        # It comes right after the end of the output, or not at all.
        if self.channel.closed or self.channel.eof_received:
            self.channel.status_event.wait(2)
        return self.channel.exit_status if self.channel.status_event.is_set() else None

    def _said(self) -> str:
        said = self.channel.recv_stderr(4096) if self.channel.recv_stderr_ready() else self.wire.pending
        lines = said[:4096].decode("utf-8", "replace")
        return shown(" ".join(lines.split())[:300]) or "it said nothing"

    def _not_begun(self, error: Exception) -> LostConnection | SickNode:
        """Where the host gave sessions before, another connection may have one."""
        if not isinstance(error, paramiko.ChannelException) or self.transport.had_session:
            return self._lost(error)
        said = f"{self.node} lets us in and gives no session: {shown(str(error.text))}"
        return SickNode(self.node, said, f"has its sshd `MaxSessions 0`? try it: ssh {self.node} true")

    def _lost(self, error: BaseException) -> LostConnection:
        return LostConnection(f"the connection to {self.node} broke: {error}", "is the network there?")


def _raise_what_it_says(message: Message, node: str = "") -> None:
    if error := message.get("error"):
        said = error if isinstance(error, Mapping) else {"message": error}
        words = _plain(said.get("message")) or _UNSAID, _plain(said.get("remedy"))
        failure = SickNode(node, *words) if said.get("sick") and node else HpctoolsError(*words)
        failure.exit_code = _code(said)
        raise failure
    if refused := message.get("refused"):
        said = refused if isinstance(refused, Mapping) else {"stderr": refused}
        raise Refusal(_plain(said.get("stderr")), _code(said))


_UNSAID = "the cluster's side failed, and does not say why"


def _code(said: Mapping[str, Any]) -> int:
    """An exit code that means no success, whatever another release made of it."""
    code = said.get("code")
    return code if type(code) is int and 0 < code < 256 else 1


def _plain(text: object) -> str:
    """Text of the other side, without what a terminal would take for a command."""
    return "\n".join(shown(line) for line in str(text or "").splitlines())


@dataclass
class Session:
    """A cluster that is spoken to for a while, whatever becomes of connections.

    Attributes:
        nodes: login nodes, the best first.
        tell: says what a person may want to know.
    """

    cluster: Cluster
    nodes: Sequence[str]
    road: Road
    tell: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    _connection: Connection | None = None
    _away: list[str] = field(default_factory=list)
    _sick: set[str] = field(default_factory=set)
    _said: set[str] = field(default_factory=set)

    @contextlib.contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Exchange]:
        """One request on the connection that there is, or a new one.

        Raises:
            UnreachableError: no login node answers.
            TurnedAway, NoKeyTaken: none lets us in.
        """
        exchange = Exchange(self._connected(), self.cluster, request)
        try:
            yield exchange
        finally:
            exchange.close()

    def again(self, attempt: Callable[[], Got], pauses: Sequence[float] = PAUSES) -> Got:
        """Do something that may be done several times, until it gets through.

        Raises:
            UnreachableError: no login node answered from the start.
            TurnedAway: none let us in from the start.
            LostConnection: the connection broke, and since then nothing got through.
        """
        lost = False
        for pause in pauses:
            self.sleep(pause)
            try:
                return self.on_a_sound_node(attempt, lost=lost)
            except (UnreachableError, TurnedAway) as error:
                self.drop()
                # Who never answered is away; what broke in the middle may come back. Of the limit a
                # session takes its part after it broke, too, until its node has noticed.
                lost = lost or isinstance(error, LostConnection)
                if not lost:
                    raise
                self.tell(error.message)
                failure: HpctoolsError = error
        # Whoever answers last, it broke before: what was asked for may have been done.
        raise LostConnection(failure.message, failure.remedy)

    def on_a_sound_node(self, attempt: Callable[[], Got], *, lost: bool = False) -> Got:
        """Do something on the first login node whose command runs.

        Args:
            lost: a line broke before, which says more than a node that is sick.

        Raises:
            SickNode: it runs on none that answers.
        """
        sick: SickNode | None = None
        while True:
            try:
                return attempt()
            except UnreachableError as error:
                raise error if sick is None or lost or isinstance(error, LostConnection) else sick from None
            except SickNode as error:
                sick = error
                self._sick.add(error.node)
                self.close()
                if self._sick >= set(self.nodes):
                    raise
                named = error.node in error.message
                self._tell_once(error.message if named else f"{error.node}: {error.message}")

    def forgive(self) -> None:
        """Ask nodes and keys again that failed: a folder may be mounted, an agent open by now."""
        self._sick.clear()
        self.road.person.unable.clear()

    def drop(self) -> None:
        """Hang up; the next request goes to another login node, if there is one."""
        if self._connection is not None:
            self._away.append(self._connection.settings.alias)
            self._said.clear()
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or not self._connection.transport.is_active():
            self.close()
            self._connection = self._first()
        return self._connection

    def _first(self) -> Connection:
        """The first login node that lets us in; one that is not who it should be ends the search."""
        failures: list[HpctoolsError] = []
        # One that broke is tried again when all others are away, too.
        sound = [node for node in self.nodes if node not in self._sick]
        for node in sorted(sound, key=lambda node: node in self._away):
            try:
                return connect(node, self.cluster.user, self.road)
            except (UnreachableError, TurnedAway, NoKeyTaken) as error:
                failures.append(error)
            except UnknownHost as error:
                if node in self.cluster.login_nodes:
                    raise
                # The site's API named it: it may be new, and nobody has compared its key yet.
                failures.append(error)
            self._away.append(node)
            if len(sound) > 1:
                self._tell_once(_in_a_line(failures[-1]))
        raise _worst(failures)

    def _tell_once(self, text: str) -> None:
        """Tell of a node that is passed over, once for each connection that broke."""
        if text not in self._said:
            self._said.add(text)
            self.tell(text)


def _in_a_line(error: HpctoolsError) -> str:
    """What happened to one that is passed over; how to get to know a host is worth a word, too."""
    return str(error) if isinstance(error, UnknownHost) else error.message.partition("\n")[0]


def _worst(failures: Sequence[HpctoolsError]) -> HpctoolsError:
    """What to end with: the no of a node that is there says more than silence, both more than a stranger."""
    for kind in (TurnedAway, NoKeyTaken, UnreachableError, UnknownHost):
        if found := [error for error in failures if isinstance(error, kind)]:
            return found[-1]
    raise AssertionError("a cluster has at least one login node")


def say(text: str) -> None:
    """Tell a person something beside the output."""
    print(f"hp-submit: {text}", file=sys.stderr)
