"""Who is on this node: connections of sshd and of Session Manager, as their processes tell.

A session is a connection, whatever runs over it, and is named by sshd's process for it (PID-START): the same
that PAM's session limit counts (docs/pam.md). Processes are what is asked, since every node has them. What
they call themselves is believed only where root owns them, and whose they are only of an account that has the
number (`_is_of`). PAM's claims, logind and utmp only add from where somebody came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hpctools.login.agent.accounts import account_of, number_of, user_name
from hpctools.login.agent.processes import Process, below, children, started_at
from hpctools.login.names import claim_of, user_of

Kind = Literal["ssh", "ssm"]

# An account may have an @ (`anna@uni.example`): only terminals behind the last one are no part of it.
_TTYS = r"(?:notty|pts/\d+|tty\w+)(?:,(?:pts/\d+|tty\w+))*"
# Root's process of a connection calls itself [priv]; in OpenSSH 10.6, though not in 10.0, [postauth].
_MONITOR = r" \[(?:priv|postauth)\]"
_TITLE = re.compile(rf"sshd(?:-session)?: (?P<user>\S+?)(?:@(?P<ttys>{_TTYS}))?(?P<monitor>{_MONITOR})?")
_WORKER = re.compile(r"(?:\S*/)?ssm-session-worker (?P<session>[\w+=,.@-]{1,128})(?: .*)?")
_PID_START = re.compile(r"[1-9]\d*-[1-9]\d{0,15}")  # Session Manager's have 17 signs there
_MULTIPLEXERS = ("tmux: client", "screen")
MOST_WAITING = 20
"""Of one person's tmux and screen: anybody can make processes of these names, more than a report holds."""


@dataclass(frozen=True)
class OpenSession:
    """A session that is open on this node.

    Attributes:
        key: PID-START of sshd's process for the connection, or Session Manager's session id
            (`hpctools.login.names`).
        pid, started: the process to end, as `Process` has them.
        since: Unix seconds.
        source: where it came from; empty when nobody tells.
        ttys: its terminals, such as `pts/3`.
        processes: what runs in it.
        multiplexed: it looks at a tmux or screen, which outlives it.
    """

    key: str
    kind: Kind
    user: str
    uid: int
    pid: int
    started: int
    since: int
    source: str = ""
    ttys: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    multiplexed: bool = False

    @property
    def cpu_ticks(self) -> int:
        """Clock ticks of all that runs in it."""
        return sum(process.cpu_ticks for process in self.processes)


def open_sessions(
    processes: Iterable[Process], boot: float, sources: Mapping[str, str] | None = None
) -> tuple[OpenSession, ...]:
    """The sessions that processes tell of, the oldest first.

    Of a key the oldest process: sudo is root's, may be called as Session Manager's worker is, and come later.

    Args:
        processes: all of the node.
        boot: when the node was started, Unix seconds.
        sources: where sessions came from, by key, pid or terminal (`hpctools.login.agent.sources`).
    """
    found = tuple(processes)
    by_parent = children(found)
    sessions = [
        session
        for process in found
        if process.uid == 0
        and (session := _ssh(process, by_parent, boot, sources or {}) or _manager(process, by_parent, boot))
    ]
    oldest: dict[str, OpenSession] = {}
    for session in sorted(sessions, key=lambda session: (session.started, session.pid)):
        oldest.setdefault(session.key, session)
    return tuple(oldest.values())


def _ssh(
    process: Process,
    by_parent: Mapping[int, tuple[Process, ...]],
    boot: float,
    sources: Mapping[str, str],
) -> OpenSession | None:
    """A connection that somebody has logged in over; before that, no process of theirs runs there."""
    title = _TITLE.fullmatch(process.title)
    if title is None or title["user"] == "unknown":
        return None
    served = process if title["ttys"] else _served(process, title["user"], by_parent)
    if served is None or (served is process and title["user"] != "root"):
        return None
    own = _TITLE.fullmatch(served.title) or title
    words = (own["ttys"] or "").split(",")
    ttys = tuple(word for word in words if word not in ("", "notty"))
    inside = tuple(below(process.pid, by_parent))
    return OpenSession(
        process.key,
        "ssh",
        own["user"],
        served.uid,
        process.pid,
        process.started,
        started_at(process, boot),
        next((sources[word] for word in (process.key, str(process.pid), *ttys) if word in sources), ""),
        ttys,
        inside,
        _is_multiplexed(inside),
    )


def _served(process: Process, user: str, by_parent: Mapping[int, tuple[Process, ...]]) -> Process | None:
    """sshd's process that runs as the user.

    It has the account's name; root's has the name that was typed. Directories take `Anna` for `anna`, too.
    """
    for child in by_parent.get(process.pid, ()):
        title = _TITLE.fullmatch(child.title) if child.uid != 0 else None
        if title and not title["monitor"] and title["user"] in (user, user_name(child.uid)):
            return child if _is_of(title["user"], child.uid) else None
    return None


def _is_of(user: str, uid: int) -> bool:
    """Whether this is no other account's name.

    sudo is root's while it asks for a password, by a program of the person's if they like (SUDO_ASKPASS), and
    both may be called as sshd's two processes are: nobody is to have a session of another one, nor of a name
    that becomes another's for the service. Where the directory knows neither it may be away.
    """
    try:
        return user_name(uid) == user or number_of(user) == uid
    except (KeyError, ValueError):
        return user_name(uid) == str(uid) and user_of(user) == user


def _manager(
    process: Process, by_parent: Mapping[int, tuple[Process, ...]], boot: float
) -> OpenSession | None:
    """A Session Manager session: its worker runs as root, what it started as who Run As says.

    Its one terminal is that of the first process of the person's; of what runs in containers below it, a
    terminal may have the same name and be another one.
    """
    worker = _WORKER.fullmatch(process.title)
    if worker is None or _PID_START.fullmatch(worker["session"]):  # that names one of ssh
        return None
    inside = tuple(below(process.pid, by_parent))
    person = next((each for each in inside if each.uid != 0), None)
    if person is None:
        return None
    return OpenSession(
        claim_of(worker["session"]),
        "ssm",
        user_name(person.uid),
        person.uid,
        process.pid,
        process.started,
        started_at(process, boot),
        ttys=(person.terminal,) if person.terminal else (),
        processes=inside,
        multiplexed=_is_multiplexed(inside),
    )


def _is_multiplexed(inside: Iterable[Process]) -> bool:
    return any(process.name in _MULTIPLEXERS for process in inside)


def detached(processes: Iterable[Process]) -> Iterator[tuple[Process, str]]:
    """Servers of tmux and screen and whose they are: people want to come back to where theirs is.

    Of each person the oldest ones; none of a number that is nobody's, as those of containers are.
    """
    found: dict[int, list[Process]] = {}
    for process in processes:
        if process.uid and _is_server(process):
            found.setdefault(process.uid, []).append(process)
    for uid, theirs in found.items():
        try:
            user = account_of(uid)
        except KeyError:
            continue
        for process in sorted(theirs, key=lambda each: (each.started, each.pid))[:MOST_WAITING]:
            yield process, user


def unattended(
    processes: Iterable[Process], sessions: Iterable[OpenSession]
) -> Iterator[tuple[Process, str]]:
    """Those of `detached` whose user has no session here that looks at one."""
    attached = {session.user for session in sessions if session.multiplexed}
    return (each for each in detached(processes) if each[1] not in attached)


def _is_server(process: Process) -> bool:
    """Whether it waits for people to come back, whoever took it over from what started it.

    That is init, or a reaper on the way such as `systemd --user`. A client of tmux has a name of its own; one
    of screen has its server's, which calls itself SCREEN.
    """
    if process.name == "tmux: server":
        return True
    if process.name != "screen":
        return False
    return process.parent == 1 or process.title.partition(" ")[0].rpartition("/")[2] == "SCREEN"
