"""Sessions that nobody uses: when they are warned and closed. Pure.

Somebody uses a session who types, or in whose session something runs. One without a terminal (a tunnel, a
copy) is never idle: nobody types into it. Nor is one that waits for a job of Slurm's, which would end with it
and has a time limit of its own, or in which one of the site's `spared` programs runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hpctools.login.agent.processes import TICKS, Process
from hpctools.login.agent.sessions import OpenSession
from hpctools.login.durations import spelt
from hpctools.site.login_care import IdleSessions

_BUSY = 0.01
"""Part of a processor; a shell at its prompt and a clock in tmux's status line use less."""

_HOLD_A_JOB = frozenset({"srun", "salloc", "sattach"})
_WAIT_WHEN_TOLD = {
    "sbatch": frozenset({"--wait", "-W"}),
    "hp-submit": frozenset({"--wait", "-W", "--follow"}),
    "hp-status": frozenset({"--watch"}),
    "hp-logs": frozenset({"--follow", "-f"}),
}
"""Programs that wait for a job when they are called so."""

Act = Literal["warn", "close"]


@dataclass(frozen=True)
class Watched:
    """What is known of a session; moments are of a clock that is never set.

    Attributes:
        used: when it was last used.
        ticks: its `cpu_ticks` when last looked at.
        looked: when that was.
        typed: what its terminals then said of when something was last typed: other words, and somebody typed.
        warned: when it was warned; None when it was not, or was used since.
    """

    used: float
    ticks: int
    looked: float
    typed: frozenset[float]
    warned: float | None = None


def watch(
    sessions: tuple[OpenSession, ...],
    known: Mapping[str, Watched],
    typed: Mapping[str, float],
    moment: tuple[float, float],
    rules: IdleSessions,
) -> tuple[Mapping[str, Watched], Mapping[str, Act]]:
    """What is known now, and what is to be done, by the sessions' keys.

    Args:
        known: of the last time.
        typed: when something was last typed, Unix seconds, by terminal.
        moment: now, by a clock that is never set, and in Unix seconds.
    """
    watched, acts = {}, {}
    for session in sessions:
        seen, act = _look(session, known.get(session.key), typed, moment, rules)
        watched[session.key] = seen
        if act is not None:
            acts[session.key] = act
    return watched, acts


def _look(
    session: OpenSession,
    before: Watched | None,
    typed: Mapping[str, float],
    moment: tuple[float, float],
    rules: IdleSessions,
) -> tuple[Watched, Act | None]:
    now, unix = moment
    said = frozenset(typed[tty] for tty in session.ttys if tty in typed)
    if before is None:
        # One that is older than the agent: what ran there until now, nobody knows.
        return Watched(now, session.cpu_ticks, now, said), None
    used = before.used
    if fresh := said - before.typed:
        # Since the last look, then; its time is of a clock that may have been set meanwhile.
        used = max(used, before.looked, min(now, now - (unix - max(fresh))))
    if _is_busy(session.cpu_ticks - before.ticks, now - before.looked) or _is_spared(session, rules):
        used = now
    seen = Watched(used, session.cpu_ticks, now, said, before.warned if used <= before.used else None)
    if now - used < rules.after:
        return replace(seen, warned=None), None
    if seen.warned is None:
        return replace(seen, warned=now), "warn"
    return seen, "close" if now - seen.warned >= rules.warning else None


def _is_busy(ticks: int, seconds: float) -> bool:
    return seconds > 0 and ticks / TICKS / seconds > _BUSY


def _is_spared(session: OpenSession, rules: IdleSessions) -> bool:
    spared = _HOLD_A_JOB.union(rules.spared)
    waits = any(process.name in spared or _waits(process) for process in session.processes)
    return waits or not session.ttys or (session.multiplexed and rules.spare_multiplexed)


def _waits(process: Process) -> bool:
    """Whether it is one that waits for a job; hpctools' own may have their interpreter in front."""
    words = process.title.split()
    for place, word in enumerate(words[:2]):
        options = _WAIT_WHEN_TOLD.get(word.rpartition("/")[2])
        if options:
            return not options.isdisjoint(words[place + 1 :])
    return False


def warning(session: OpenSession, rules: IdleSessions) -> str:
    """What somebody is told whose session will be closed."""
    where = ", ".join(session.ttys)
    return (
        f"Nothing has happened in your session on {where} for {spelt(rules.after)}. It will "
        f"be closed in {spelt(rules.warning)}; press a key to keep it. What runs in tmux goes on."
    )
