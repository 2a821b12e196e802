"""The recovery policy as a watcher of the run: detectors find, the ladder decides, the history is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import Any

from hpctools.elastic.actions import Action, Fail, ReplaceNode, RestartAll, RestartWorker, RollBack
from hpctools.elastic.recovery.findings import IDLE, Detector, Finding
from hpctools.elastic.recovery.ladder import Decision, Ladder
from hpctools.elastic.recovery.log_rules import Logs
from hpctools.elastic.recovery.numbers import Course, Finite, Metrics
from hpctools.elastic.recovery.pace import Pace, Slow
from hpctools.elastic.recovery.settings import EXIT_CODES, OF_A_NODE, Crash, Recovery
from hpctools.elastic.watchers import Report, View

SETTLED_SECONDS = 60.0
QUIET_SECONDS = 60.0

Note = Callable[..., None]
"""Writes an event into the run's history: its kind, and what else is known by keyword."""


def never_kept(node: str) -> str | None:
    """No node is needed so much that it could not be given up."""
    return None


class Crashes:
    """A worker's process has ended by itself."""

    def __init__(self, settings: Crash) -> None:
        self._settings = settings

    def heard(self, now: float, report: Report) -> list[Finding]:
        """Whether it ended badly."""
        if report.kind != "exit" or not report.code:
            return []
        ended = f"exit code {report.code}" if report.code > 0 else f"signal {-report.code}"
        last = f": {report.lines[-1]}" if report.lines else ""
        return [
            Finding(
                "crash",
                self._settings.do,
                f"{report.worker} on {report.node} ended with {ended}{last}",
                worker=report.worker,
                node=report.node,
                step=report.step,
                numbers={"code": float(report.code)},
            )
        ]

    def tick(self, now: float, view: View) -> list[Finding]:
        """Nothing: ends come with reports."""
        return []

    def reset(self, *, anew: bool = True) -> None:
        """Nothing is remembered."""


class RecoveryWatcher:
    """See `hpctools.elastic.watchers.Watcher`.

    After an action it looks away until the run has changed: what still comes is of the time before. Ends of
    processes are dealt with all the same, and lines with which they ended.

    Args:
        note: writes into the run's history.
        ladder: with what earlier coordinators did.
        restarts: whatever is done starts all processes again (restart mode).
        begun: the training began under an earlier coordinator.
        over: log rules that were over by then.
        kept: why a node would not be given up now; None: it would be.
    """

    def __init__(
        self,
        settings: Recovery,
        note: Note,
        ladder: Ladder,
        *,
        restarts: bool = False,
        begun: bool = False,
        over: Collection[str] = (),
        kept: Callable[[str], str | None] = never_kept,
    ) -> None:
        self._settings = settings
        self._kept = kept
        self._slow_and_kept: set[tuple[str, int]] = set()  # nodes with the run's size then
        self._world = 0
        self._note = note
        self._ladder = ladder
        self._detectors = detectors_of(settings, note, begun=begun, over=over)
        self._restarts = restarts
        self._generation = 0
        self._workers: set[str] = set()
        self._former: set[str] = set()  # of before all began again: what they printed last may come yet
        self._looks_away: tuple[int, float] | None = None
        self._ending = False
        self._crashed: set[str] = set()  # workers that were started again because of that, since we look away
        self._told: dict[tuple[str, str, str], float] = {}
        self._rolled: Finding | None = None
        self._ranks_of = 0  # the last generation of which ranks ran, as we saw
        self._judged: dict[str, int] = {}  # log rules, and the last generation of ranks with a finding

    def handles(self, report: Report) -> bool:
        """Whether the end of a worker's process is this watcher's to deal with, not the coordinator's."""
        return report.kind == "exit" and self._settings.enforce and self._settings.crash is not None

    def heard(self, now: float, report: Report) -> Sequence[Action]:
        """A report has come."""
        if report.kind == "no_way_back":
            return self._climb(now, report)
        if report.kind == "log" and report.worker in self._former:
            return []
        if self._looks_away is not None and report.kind not in ("exit", "log"):
            return []
        found = [finding for each in self._detectors for finding in each.heard(now, report)]
        if found and self._is_told_late(report):
            return []
        if self._looks_away is not None:
            found = [finding for finding in found if self._cannot_wait(now, finding)]
        return self._act(now, found, restarted=report.past)

    def tick(self, now: float, view: View) -> Sequence[Action]:
        """Some time has passed."""
        if view.generation < self._generation and not self._restarts:
            self._begin_anew()  # nobody had the state any more
        self._generation, self._world = view.generation, view.world
        self._workers.update(each.worker for each in view.members)
        self._note_start(view)
        self._look_again(now, view)
        found = [finding for each in self._detectors for finding in each.tick(now, view)]
        # In restart mode ranks save and end while the run is resized, and have a limit of their own for it.
        ends = self._restarts and view.phase == "resizing"
        return [] if ends or self._looks_away is not None else self._act(now, found)

    def _note_start(self, view: View) -> None:
        """Restart mode: whatever started the ranks again, they print what they print at a start.

        A coordinator that has just taken over learns the generation from agent to agent: that is no start.
        """
        if not self._restarts or view.phase in IDLE:
            return
        if 0 < self._ranks_of < view.generation:
            for each in self._detectors:
                each.reset(anew=True)
        self._ranks_of = view.generation

    def _is_told_late(self, report: Report) -> bool:
        """Whether it is of ranks that were started again since, and the rule had a finding of them already.

        All of them may print a fault before they end; that they run again is the answer to all of it.
        """
        judged = self._judged.get(report.what, 0)
        if report.generation is None:
            return False
        self._judged[report.what] = max(judged, report.generation)
        return report.past and report.generation <= judged

    def _cannot_wait(self, now: float, finding: Finding) -> bool:
        """Whether a finding is dealt with while we look away.

        Of a worker that ends with a line we hear the end first, and have started it again. Where the rule of
        that line wants something else, that is done yet; once, as others may have ended of the same fault.
        """
        late = finding.once and finding.worker in self._crashed
        if late and self._ladder.own_rung(now, finding) != "restartProcess":
            self._crashed.clear()
            return True
        return finding.cause == "crash"

    def _look_again(self, now: float, view: View) -> None:
        if self._looks_away is None:
            return
        generation, since = self._looks_away
        changed = view.generation > generation and view.phase == "running"
        if changed or now - since > SETTLED_SECONDS:
            self._looks_away = None
            self._crashed.clear()
            for each in self._detectors:
                each.reset(anew=self._restarts)

    def _begin_anew(self) -> None:
        """All processes begin again: what they print at a start comes before they train.

        In restart mode they train as soon as they are started.
        """
        self._former |= self._workers
        self._workers.clear()
        for each in self._detectors:
            each.reset(anew=True)

    def _act(self, now: float, found: Sequence[Finding], *, restarted: bool = False) -> list[Action]:
        """What the findings lead to.

        Args:
            restarted: whether all ranks have been started again since; that is not done twice.
        """
        actions: list[Action] = []
        for finding in found:
            if self._ending or (actions and finding.cause != "crash"):
                break  # one thing at a time; what is still wrong afterwards will be found again
            if not self._settings.enforce and self._is_repeated(now, finding):
                continue
            if _waits_for_its_agent(finding) or self._has_to_stay(now, finding):
                continue
            decision = self._ladder.decide(now, finding)
            if decision is None:
                continue
            self._note("finding", **_decided(finding, decision, enforced=self._settings.enforce))
            if restarted and not isinstance(decision.action, (ReplaceNode, Fail)):
                continue
            if self._settings.enforce:
                actions += [decision.action, *_with_it(finding, decision.action)]
                self._rolled = finding if isinstance(decision.action, RollBack) else self._rolled
                self._acted(now, decision.action)
                if decision.counts and (finding.cause, decision.rung) == ("crash", "restartProcess"):
                    self._crashed.add(finding.worker)  # not who is part of what was done to all
        return actions

    def _has_to_stay(self, now: float, finding: Finding) -> bool:
        """Whether a node that is only slow has to stay; that is said once for each size of the run.

        Started again there its worker would be as slow. So nothing is done, and nothing counts.
        """
        is_slow = finding.cause == "slowRank" and self._settings.enforce
        if not is_slow or self._ladder.own_rung(now, finding) not in OF_A_NODE:
            return False
        why, key = self._kept(finding.node), (finding.node, self._world)
        if why is not None and key not in self._slow_and_kept:
            self._slow_and_kept.add(key)
            self._note("finding", **_told(finding, "none", why, counts=False, enforced=True))
            self._note("warning", message=f"{finding.why}; {finding.node} is not replaced: {why}")
        return why is not None

    def _acted(self, now: float, action: Action) -> None:
        if isinstance(action, RestartAll) and not self._restarts:
            self._begin_anew()
        self._ending = isinstance(action, Fail)
        self._looks_away = (self._generation, now)

    def _climb(self, now: float, report: Report) -> list[Action]:
        """There is nothing to roll back to: the next rung; unknown to who took over, it is to restart all."""
        finding, self._rolled = self._rolled, None
        if report.step is None:
            self._begin_anew()
            return []
        action: Action = RestartAll(f"rollBack cannot be done: {report.what}")
        if finding is not None:
            decision = self._ladder.instead_of_roll_back(now, finding, report.what)
            self._note("finding", **_decided(finding, decision, enforced=True))
            action = decision.action
        self._acted(now, action)
        return [action]

    def _is_repeated(self, now: float, finding: Finding) -> bool:
        """In mode log nothing changes what was found: say it once a minute."""
        key = (finding.cause, finding.name, finding.worker)
        if now - self._told.get(key, float("-inf")) < QUIET_SECONDS:
            return True
        self._told[key] = now
        return False


def _waits_for_its_agent(finding: Finding) -> bool:
    """Whether only its node could be dealt with, which is not known while its agent is not here.

    That is found again. Nothing could be done now, so the run would fail.
    """
    told_again = finding.cause in ("slowRank", "metric") and finding.worker != ""
    return told_again and not finding.node and not set(finding.do).difference(OF_A_NODE)


def _with_it(finding: Finding, action: Action) -> list[Action]:
    """A process that has ended already is nobody's to end: what is done to all starts it again, too."""
    if finding.cause == "crash" and isinstance(action, (RestartAll, RollBack)):
        return [RestartWorker(finding.worker, action.reason, EXIT_CODES[finding.cause])]
    return []


def detectors_of(
    settings: Recovery, note: Note, *, begun: bool = False, over: Collection[str] = ()
) -> tuple[Detector, ...]:
    """What a policy looks for; the most specific first. See `RecoveryWatcher` for what it is given."""
    found: list[Detector] = []
    if settings.crash is not None:
        found.append(Crashes(settings.crash))
    if settings.non_finite is not None:
        found.append(Finite(settings.non_finite))
    if settings.metrics:
        found.append(Metrics(settings.metrics))
    if settings.spike is not None:
        found.append(Course(settings.spike))
    if settings.logs:
        found.append(Logs(settings.logs, note, begun=begun, over=over))
    if settings.slow is not None:
        found.append(Slow(settings.slow))
    if settings.stall is not None or settings.hang is not None:
        found.append(Pace(settings.stall, settings.hang))
    return tuple(found)


def _decided(finding: Finding, decision: Decision, *, enforced: bool) -> Mapping[str, Any]:
    return _told(finding, decision.rung, decision.why, counts=decision.counts, enforced=enforced)


def _told(finding: Finding, rung: str, why: str, *, counts: bool, enforced: bool) -> Mapping[str, Any]:
    """The event `finding`: enough for a person, and for a later coordinator to go on from."""
    return {
        "cause": finding.cause,
        "name": finding.name,
        "worker": finding.worker,
        "node": finding.node,
        "step": finding.step,
        "why": finding.why,
        # JSON has no nan.
        "numbers": {key: value if isfinite(value) else str(value) for key, value in finding.numbers.items()},
        "rung": rung,
        "ladder": why,
        "counts": counts,
        "mode": "enforce" if enforced else "log",
    }
