"""From a finding to an action: each cause climbs its rungs, and nothing is tried for ever.

Only what is affected is restarted: a rung that needs a culprit is passed over when there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hpctools.elastic.actions import Action, Fail, ReplaceNode, RestartAll, RestartWorker, RollBack
from hpctools.elastic.recovery.findings import Finding
from hpctools.elastic.recovery.settings import (
    EXIT_CODES,
    EXIT_FULL_RESTARTS,
    EXIT_RETRIES,
    OF_A_NODE,
    Recovery,
)

INCIDENT_SECONDS = 5.0
LAST = ("restartAll", "fail")
TO_ALL = (*LAST, "rollBack")
"""What is done to all workers: who ends at about the same time, on whichever node, is part of that."""
IN_WORK = ("crash", "stalledStep", "hang")
"""Causes whose finding tells of completed steps; to blame is the one after."""


@dataclass(frozen=True)
class Entry:
    """What was done earlier.

    Attributes:
        at: when, on the coordinator's clock; before its origin when an earlier coordinator did it.
        rung: as it was carried out; `excludeNode` also when a replaced node was excluded.
    """

    at: float
    cause: str
    name: str
    worker: str
    node: str
    rung: str


@dataclass(frozen=True)
class Decision:
    """What to do about a finding.

    Attributes:
        rung: of the ladder; for the run's history.
        action: what the coordinator is asked for.
        counts: whether it is a new recovery; False: part of one that was begun just now.
        why: what the ladder went by, one line.
    """

    rung: str
    action: Action
    counts: bool
    why: str


class Ladder:
    """The rungs of a run; remembers what it decided."""

    def __init__(self, settings: Recovery) -> None:
        self._settings = settings
        self._entries: list[Entry] = []

    def restore(self, entries: Iterable[Entry]) -> None:
        """Take over what an earlier coordinator of the run did."""
        self._entries.extend(entries)

    def decide(self, now: float, finding: Finding) -> Decision | None:
        """What to do; None: an action that was asked for just now covers it."""
        same = self._incident(now, finding)
        if same is not None:
            return self._join(same, finding)
        rung, why = self._rung(now, finding)
        decision = self._decision(rung, why, finding)
        if rung in OF_A_NODE:
            decision = self._with_exclusion(now, rung, decision, finding)
        entry = (finding.cause, finding.name, finding.worker, finding.node, decision.rung)
        self._entries.append(Entry(now, *entry))
        return decision

    def own_rung(self, now: float, finding: Finding) -> str:
        """The next rung of the finding's `do`, whatever else counts for the run."""
        return self._climbed(now, finding)[0]

    def instead_of_roll_back(self, now: float, finding: Finding, why: str) -> Decision:
        """The next rung, since nothing is kept to roll back to.

        Only one that needs no worker's state: what they have is what is to be given up.

        Args:
            why: there is nothing.
        """
        after = finding.do[finding.do.index("rollBack") + 1 :] if "rollBack" in finding.do else ()
        rung = next((each for each in after if each in LAST), "fail")
        rung, why = self._within_restarts(now, rung, f"rollBack cannot be done: {why}")
        decision = self._decision(rung, why, finding)
        entry = (finding.cause, finding.name, finding.worker, finding.node, decision.rung)
        self._entries.append(Entry(now, *entry))
        return decision

    def _incident(self, now: float, finding: Finding) -> Entry | None:
        """The recovery that was begun just now for this node, or for all: several workers ended together.

        Not only the last one is looked at: ends of several nodes' workers are told in any order.
        """
        if finding.cause != "crash":
            return None
        fresh = (each for each in reversed(self._entries) if now - each.at < INCIDENT_SECONDS)
        crashes = (each for each in fresh if each.cause == "crash")
        together = (each for each in crashes if each.node == finding.node or each.rung in TO_ALL)
        last = next(together, None)
        another = last is not None and _place(last.worker) != _place(finding.worker)
        return last if another else None

    def _join(self, entry: Entry, finding: Finding) -> Decision | None:
        if entry.rung == "fail":
            return None
        together = f"together with {entry.worker}"
        restart = RestartWorker(finding.worker, _reason(finding, together), EXIT_CODES[finding.cause])
        return Decision("restartProcess", restart, False, together)

    def _rung(self, now: float, finding: Finding) -> tuple[str, str]:
        settings, recent = self._settings, self._recent(now)
        if len(self._entries) >= settings.retries:
            return "retries", f"jobMaxRetryCount {settings.retries} is used up"
        rung, tried = self._climbed(now, finding)
        why = f"time {tried + 1} in {settings.restart.period_s:g} s"
        partial = sum(entry.rung not in LAST for entry in recent)
        too_many = partial >= settings.restart.partial
        if too_many and rung not in LAST and "restartAll" in finding.do:  # not `fail`: none of its was tried
            rung = "restartAll"
            why = f"numRestartBeforeFullJobRestart {settings.restart.partial} is used up"
        return self._within_restarts(now, rung, why)

    def _climbed(self, now: float, finding: Finding) -> tuple[str, int]:
        """The next rung of the finding's `do`, and how often it has climbed."""
        tried = sum(_is_like(entry, finding) for entry in self._recent(now))
        possible = [rung for rung in finding.do if _can(rung, finding)] or ["fail"]
        return possible[min(tried, len(possible) - 1)], tried

    def _within_restarts(self, now: float, rung: str, why: str) -> tuple[str, str]:
        policy = self._settings.restart
        most, counted = policy.full, self._recent(now) if policy.full_in_period else self._entries
        full = sum(entry.rung == "restartAll" for entry in counted)
        if rung == "restartAll" and full >= most:
            return "fullRestarts", f"maxFullJobRestarts {most} is used up"
        return rung, why

    def _decision(self, rung: str, why: str, finding: Finding) -> Decision:
        reason, code = _reason(finding, why), EXIT_CODES[finding.cause]
        if rung == "retries":
            return Decision("fail", Fail(EXIT_RETRIES, reason), True, why)
        if rung == "fullRestarts":
            return Decision("fail", Fail(EXIT_FULL_RESTARTS, reason), True, why)
        actions: dict[str, Action] = {
            "restartProcess": RestartWorker(finding.worker, reason, code),
            "replaceNode": ReplaceNode(finding.node, False, reason, finding.worker, code),
            "excludeNode": ReplaceNode(finding.node, True, reason, finding.worker, code),
            "rollBack": RollBack(self._settings.back, self._settings.skip, reason, _blamed(finding), code),
            "restartAll": RestartAll(reason),
            "fail": Fail(code, reason),
        }
        return Decision(rung, actions[rung], True, why)

    def _with_exclusion(self, now: float, rung: str, decision: Decision, finding: Finding) -> Decision:
        """A node is excluded for ever only so often, and when it is to blame for the second time."""
        excluded = {entry.node for entry in self._entries if entry.rung == "excludeNode"}
        may = len(excluded) < self._settings.restart.offenders
        before = (each for each in self._recent(now) if not _is_its_end(each, finding))
        offends = any(entry.node == finding.node for entry in before)
        if not may:
            return self._decision("replaceNode", decision.why, finding)
        if offends or rung == "excludeNode":
            return self._decision(
                "excludeNode", f"{decision.why}, repeat offender" if offends else decision.why, finding
            )
        return decision

    def _recent(self, now: float) -> list[Entry]:
        return [entry for entry in self._entries if now - entry.at < self._settings.restart.period_s]


def _is_like(entry: Entry, finding: Finding) -> bool:
    """Whether an earlier recovery was for the same cause, at the same place where that is known."""
    same_place = not finding.node or not entry.node or entry.node == finding.node
    return (entry.cause, entry.name) == (finding.cause, finding.name) and same_place


def _is_its_end(entry: Entry, finding: Finding) -> bool:
    """Whether it was for the end of the process that is to blame now, too: one fault, seen twice."""
    return entry.cause == "crash" != finding.cause and bool(entry.worker) and entry.worker == finding.worker


def _place(worker: str) -> str:
    """Where a worker runs, without which attempt there it is: one that was started again is no other."""
    return worker.rpartition(".")[0] or worker


def _can(rung: str, finding: Finding) -> bool:
    if rung == "restartProcess":
        return bool(finding.worker)
    return bool(finding.node) or rung not in OF_A_NODE


def _blamed(finding: Finding) -> int | None:
    """The step whose batch a roll back may leave out; None: the one in work."""
    in_work = finding.step is not None and finding.cause in IN_WORK
    return finding.step + 1 if in_work and finding.step is not None else finding.step


def _reason(finding: Finding, why: str) -> str:
    name = f" {finding.name}" if finding.name and finding.cause in ("metric", "log") else ""
    at = f" at step {finding.step}" if finding.step is not None else ""
    return f"{finding.cause}{name}{at}: {finding.why} ({why})"
