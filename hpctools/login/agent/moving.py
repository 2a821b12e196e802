"""People's programs that a service started, put into their owners' slices, where systemd's limits hold.

Session Manager's agent starts shells without PAM: logind knows nothing of them, and they stay in its service.
systemd itself moves them, into a scope of user-UID.slice (docs/decisions/0219).
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from hpctools.errors import CommandError, CommandTimeout
from hpctools.login.agent.accounts import user_name
from hpctools.login.agent.pausing import Pause
from hpctools.login.agent.processes import PROC, Process, read_process
from hpctools.login.agent.slices import cgroups_of, is_a_jobs
from hpctools.login.agent.usage import is_person
from hpctools.slurm.run import run

_log = logging.getLogger("hpctools.login")

_SECONDS = 10.0
_LOOK_SECONDS = 3.0
"""So long one look moves: an agent that begins where dozens are would report late."""
_SETTLE_SECONDS = 0.3
_AGAIN_SECONDS = 60.0
_MOST = 1000
"""Processes of one person that one look moves, the oldest first."""
_TRIES = 3
"""So often a process is moved that is still there afterwards."""
_ROUNDS = 5
"""So often in one look systemd is asked about a person whose processes end meanwhile."""
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")


class Mover:
    """Has systemd put people's programs into their slices, as soon as a look finds them in a service.

    At once, since memory counts where a program was when it took it.

    Args:
        services: names of the services whose people's programs are moved.
        exempt: whether this user is left alone; those have no limits.
        monotonic: seconds, never going back.
        proc: where the kernel's process files are.
    """

    def __init__(
        self,
        services: Collection[str],
        exempt: Callable[[str], bool],
        monotonic: Callable[[], float] = time.monotonic,
        proc: Path = PROC,
    ) -> None:
        self._services, self._exempt = frozenset(services), exempt
        self._monotonic, self._proc = monotonic, proc
        self._is_able: bool | None = None
        self._elsewhere: set[str] = set()
        self._brought: dict[str, int] = {}
        self._tries: Counter[str] = Counter()
        self._failing: dict[int, tuple[float, str]] = {}

    def look(self, processes: Iterable[Process], pause: Pause) -> None:
        """Move those that have come.

        Args:
            processes: all of the node.
            pause: after systemd hung; nothing is moved while it lasts.
        """
        if self._is_able is False:
            return
        until = self._monotonic() + _LOOK_SECONDS
        for uid, theirs in self._waiting(processes).items():
            now = self._monotonic()
            if pause.lasts(now) or now > until:
                return
            if uid not in self._failing or now >= self._failing[uid][0]:
                self._try(uid, theirs, pause)

    def brought(self, processes: Iterable[Process]) -> int:
        """Bytes that these had when they were moved, and still have: the kernel has them with the service."""
        return sum(min(self._brought.get(each.key, 0), each.memory) for each in processes)

    def _waiting(self, processes: Iterable[Process]) -> Mapping[int, Sequence[Process]]:
        """Whom to move, by person, the oldest first."""
        people = {each.key: each for each in processes if is_person(each.uid)}
        self._forget(people)
        found: dict[int, list[Process]] = {}
        for key, process in people.items():
            if key in self._elsewhere:
                continue
            if self._tries[key] < _TRIES and service_of(process.pid, self._services, self._proc):
                found.setdefault(process.uid, []).append(process)
            else:
                self._elsewhere.add(key)
        self._failing = {uid: failed for uid, failed in self._failing.items() if uid in found}
        return {
            uid: sorted(theirs, key=_age)[:_MOST]
            for uid, theirs in found.items()
            if not self._exempt(user_name(uid))
        }

    def _forget(self, people: Mapping[str, Process]) -> None:
        """What is known of processes that are no more."""
        self._elsewhere &= people.keys()
        for known in (self._brought, self._tries):
            for key in known.keys() - people.keys():
                del known[key]

    def _try(self, uid: int, theirs: Sequence[Process], pause: Pause) -> None:
        try:
            if self._can_move():
                if self._move(uid, theirs):
                    pause.answered()
                self._failing.pop(uid, None)
        except CommandTimeout as error:
            pause.hung(self._monotonic(), error)
        except CommandError as error:
            said = str(error)
            if uid not in self._failing and said not in {each for _, each in self._failing.values()}:
                _log.warning(
                    "programs of %s stay in the service that started them, where their limits do not reach; "
                    "this is tried again each minute: %s", user_name(uid), said
                )  # fmt: skip
            self._failing[uid] = self._monotonic() + _AGAIN_SECONDS, said

    def _can_move(self) -> bool:
        """Whether this systemd may be asked; that it may not is said once.

        Raises:
            CommandError: it does not say which it is.
        """
        if self._is_able is None:
            said = run(["systemctl", "--version"], timeout=_SECONDS).stdout
            self._is_able = leaves_slices(said)
            if not self._is_able:
                _log.warning(
                    "this %s ends all in a person's slice when their last login by ssh ends: what services "
                    "start is not put there, and limits do not reach it", said.partition("\n")[0]
                )  # fmt: skip
        return self._is_able

    def _move(self, uid: int, theirs: Sequence[Process]) -> bool:
        """Have them moved, in one call, which systemd refuses for one that has ended: then without that.

        Returns:
            Whether systemd took it; it is not asked when all have ended.

        Raises:
            CommandError: it cannot be done.
        """
        for _ in range(_ROUNDS):
            present = [each for each in theirs if self._is_still(each)]
            if not present:
                break
            try:
                run(call(uid, present), timeout=_SECONDS)
            except CommandTimeout:
                raise
            except CommandError:
                if all(self._is_still(each) for each in present):
                    raise
                theirs = present
            else:
                self._settle(present)
                self._tries.update(each.key for each in present)
                self._brought |= {each.key: each.memory for each in present}
                return True
        return False

    def _settle(self, processes: Iterable[Process]) -> None:
        """Wait a moment: systemd answers first, and in this very look people are told what limits reach."""
        end = time.monotonic() + _SETTLE_SECONDS
        for each in processes:
            while service_of(each.pid, self._services, self._proc) and time.monotonic() < end:
                time.sleep(0.01)

    def _is_still(self, process: Process) -> bool:
        """Whether the number is still this process's, which runs, as the same person, where it was found."""
        now = read_process(process.pid, self._proc)
        return (
            now is not None
            and (now.key, now.uid) == (process.key, process.uid)
            and not _has_ended(process.pid, self._proc)
            and service_of(process.pid, self._services, self._proc) != ""
        )


def call(uid: int, processes: Sequence[Process]) -> list[str]:
    """The command that has systemd put processes into a scope of a person's slice.

    It is named by its first process as no other is until the next boot. It is sent SIGHUP at its end, as
    logind's are: shells pass over SIGTERM, and the node would wait for them when it goes down. systemd is not
    to count its memory, which it does for the slice: else it ends all of it when the kernel ends one program.

    Args:
        uid: whose they are.
        processes: at least one.
    """
    pids = [str(each.pid) for each in processes]
    properties = [
        ("PIDs", "au", str(len(pids)), *pids),
        ("Slice", "s", f"user-{uid}.slice"),
        ("Description", "s", f"Programs of user {uid} that a service started"),
        ("CollectMode", "s", "inactive-or-failed"),
        ("SendSIGHUP", "b", "true"),
        ("MemoryAccounting", "b", "false"),
    ]
    words = [word for each in properties for word in each]
    name = f"hpctools-login-{uid}-{processes[0].key}.scope"
    asked = ["StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", str(len(properties)), *words, "0"]
    return ["busctl", "call", *_MANAGER, *asked]


def service_of(pid: int, services: Collection[str], proc: Path = PROC) -> str:
    """The service that a process is in, of these; empty for none, or when a job of Slurm's has it.

    Above the service there are slices only: one of that name in a container or of a person's own is another.

    Args:
        pid: its number.
        services: names of units.
        proc: where the kernel's process files are.
    """
    found = cgroups_of(pid, proc)
    if is_a_jobs(found):
        return ""
    return next((name for line in found.splitlines() if (name := _unit(line)) in services), "")


def _unit(line: str) -> str:
    """The unit that systemd has a process in, by a line of /proc/PID/cgroup; empty for others."""
    _, controllers, path = line.split(":", 2)
    if controllers not in _OWN_OF_SYSTEMD:
        return ""
    return next((part for part in path.split("/") if part and not part.endswith(".slice")), "")


_OWN_OF_SYSTEMD = ("", "name=systemd")

_VERSION = re.compile(r"systemd (\d+)(?: \(\d+-(\d+)\S*\.el8)?", re.ASCII)
_FIRST = 240
_FIRST_OF_RED_HAT_8 = (239, 50)


def leaves_slices(said: str) -> bool:
    """Whether logind leaves a person's slice alone when their last login ends, as long as something is in it.

    Args:
        said: by `systemctl --version`. Red Hat 8's 239 has it since its build 50.

    >>> leaves_slices("systemd 252 (252.38-1~deb12u1)"), leaves_slices("systemd 239 (239-82.el8_10.5)")
    (True, True)
    """
    found = _VERSION.match(said)
    if found is None:
        return False
    version, build = int(found[1]), int(found[2] or 0)
    return version >= _FIRST or (version, build) >= _FIRST_OF_RED_HAT_8


def _age(process: Process) -> tuple[int, int]:
    return process.started, process.pid


def _has_ended(pid: int, proc: Path) -> bool:
    """Whether only its parent still has to hear of its end: a scope of such alone would never be empty."""
    try:
        words = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return words[0] in "ZX" and int(words[17]) < 2  # its other threads may go on
    except (OSError, IndexError, ValueError):
        return True
