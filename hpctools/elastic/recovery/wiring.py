"""From a run's description to what the coordinator and the agents need."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.recovery.ladder import Entry, Ladder
from hpctools.elastic.recovery.log_rules import over_before
from hpctools.elastic.recovery.policy_text import parse
from hpctools.elastic.recovery.settings import FULL_IN_RESTART_MODE, Hang, LogRule, Recovery
from hpctools.elastic.recovery.watching import Note, RecoveryWatcher, never_kept
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError


def watchers_of(
    spec: RunSpec,
    folder: RunFolder,
    now: float,
    note: Note | None = None,
    kept: Callable[[str], str | None] = never_kept,
) -> list[RecoveryWatcher]:
    """The watchers that a run's policy asks for; none without one.

    Args:
        now: the coordinator's clock; what earlier coordinators did is placed on it.
        note: writes into the run's history; straight into the folder when None.
        kept: why a node would not be given up now; None: it would be.

    Raises:
        ElasticError: the policy in the run's description makes no sense (it was checked at submit).
    """
    settings = _of_mode(spec, parse(spec.recovery, f"run {spec.id}"))
    if not settings.watches:
        return []
    ladder = Ladder(settings if settings.enforce else _on_paper(settings))
    events = _events(folder)
    ladder.restore(entries_of(events, now, datetime.now(timezone.utc)))
    restarts, begun = spec.mode == "restart", any(each.event == "joined" for each in events)
    over = over_before(events)
    noting = note or _noting(folder)
    return [RecoveryWatcher(settings, noting, ladder, restarts=restarts, begun=begun, over=over, kept=kept)]


def _of_mode(spec: RunSpec, settings: Recovery) -> Recovery:
    """In restart mode whatever is done restarts all: it may be done as often as without a watcher."""
    if spec.mode != "restart":
        return settings
    stated = (spec.recovery.get("runPolicy") or {}).get("restartPolicy") or {}
    full = settings.restart.full if stated.get("maxFullJobRestarts") is not None else FULL_IN_RESTART_MODE
    return replace(settings, restart=replace(settings.restart, full=full, full_in_period=True))


def _on_paper(settings: Recovery) -> Recovery:
    """What was only written down uses up nothing of what is counted for the whole run."""
    endless = sys.maxsize
    return replace(
        settings, retries=endless, restart=replace(settings.restart, full=endless, offenders=endless)
    )


def log_rules_of(spec: RunSpec) -> tuple[LogRule, ...]:
    """The log rules that an agent's matcher needs; none without a policy."""
    return parse(spec.recovery, f"run {spec.id}").logs


def longest_silence(spec: RunSpec) -> float:
    """Seconds without a step that are a hang, by the policy or without one."""
    return (parse(spec.recovery, f"run {spec.id}").hang or Hang()).seconds


def entries_of(events: Iterable[Event], now: float, utc: datetime) -> list[Entry]:
    """What earlier coordinators did, from their `finding` events.

    Args:
        now, utc: the same moment, on the coordinator's clock and on the wall.
    """
    return [
        Entry(now - age, *_parts(event.detail))
        for event in events
        if event.event == "finding" and event.detail.get("counts")
        if (age := age_of(event.time, utc)) is not None
    ]


def age_of(time: str, utc: datetime) -> float | None:
    """How many seconds ago an event's time was; None: its line is damaged.

    What a clock that was fast wrote was just now: else it would count for as much longer.
    """
    try:
        return max(0.0, (utc - datetime.fromisoformat(time)).total_seconds())
    except (ValueError, TypeError):
        return None


def _parts(detail: dict[str, Any]) -> tuple[str, str, str, str, str]:
    cause, name, worker, node, rung = (
        str(detail.get(key, "")) for key in ("cause", "name", "worker", "node", "rung")
    )
    return cause, name, worker, node, rung


def _events(folder: RunFolder) -> list[Event]:
    try:
        return folder.events()
    except ElasticError:
        return []  # without a history the ladder begins at its first rung


def _noting(folder: RunFolder) -> Note:
    def note(event: str, **detail: Any) -> None:
        with contextlib.suppress(ElasticError):  # the coordinator's own journal says that the disk is full
            folder.append_event(event, **detail)

    return note
