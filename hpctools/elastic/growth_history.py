"""What the coordinator notes about replicas, resizes and speed, so that `growth` can judge."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hpctools.elastic.deciding import GrowthFacts, Verdict
from hpctools.elastic.growth import NEVER, Facts, Patience, Rate, Rule, Tenure
from hpctools.elastic.growth_past import Past
from hpctools.elastic.policy import ElasticPolicy

KEPT = 200
PAUSES = 9


class GrowthHistory:
    """Notes what happens; `facts` says what is known. All times on one clock that only grows, in seconds.

    Attributes:
        time_left: seconds until the run's time limit ends it; None: never, or not known.
    """

    def __init__(self) -> None:
        self.time_left: Callable[[], float | None] = lambda: None
        self._since: dict[str, float] = {}
        self._expected: dict[str, float] = {}  # who was there before a takeover, and may come back
        self._tenures: deque[Tenure] = deque(maxlen=KEPT)
        self._pauses: deque[float] = deque(maxlen=PAUSES)
        self._growths: deque[tuple[float, float | None]] = deque(maxlen=KEPT)
        self._rates: dict[int, Rate] = {}
        self._last: tuple[float, int, int] | None = None
        self._restarted = NEVER
        self._unmeasured = False
        self._has_begun = False

    def arrived(self, node: str, now: float) -> None:
        """A replica's node can take part from now on."""
        self._since.setdefault(node, self._expected.pop(node, now))

    def departed(self, node: str, now: float, *, taken: bool) -> None:
        """A replica's node is not there any more.

        Args:
            taken: whether it was taken from us or died; False: the run itself gave it up.
        """
        since = self._since.pop(node, None)
        if since is not None:
            self._tenures.append(Tenure(now - since, taken, now))

    def formed(self, before: int, now_members: int, now: float, *, recovered: bool) -> None:
        """A generation of another size is in force.

        Args:
            before: how many trained in the one before; 0 at the run's start, and when all were restarted.
            recovered: somebody was lost, or there was none before.
        """
        self._last = None
        self._unmeasured = before > 0 and not recovered  # a recovery's may have waited for nodes, for hours
        if recovered and (before > 0 or self._has_begun):
            self._restarted = now
        self._has_begun = True
        if now_members > before > 0:
            self.grew(now)
        elif now_members < before:
            self.shrank(now)

    def grew(self, now: float) -> None:
        """The run has become larger, or is about to."""
        self._growths.append((now, None))

    def shrank(self, now: float) -> None:
        """What the last growth gained is lost again."""
        if self._growths and self._growths[-1][1] is None:
            grown, _ = self._growths.pop()
            self._growths.append((grown, now))

    def resized(self, pause_s: float) -> None:
        """The pause of the last change was measured; that of a beginning or a recovery is no cost."""
        if self._unmeasured:
            self.paused(pause_s)
        self._unmeasured = False

    def paused(self, seconds: float) -> None:
        """A change of size has cost so much."""
        self._pauses.append(seconds)

    def progressed(self, now: float, world: int, samples: int) -> None:
        """So many samples since the training began, at the present size."""
        last, self._last = self._last, (now, world, samples)
        if last is None or last[1] != world or samples <= last[2]:
            # What is measured begins with a step that ended at this size.
            self._last = last if last is not None and last[1] == world and samples == last[2] else self._last
            return
        rate = self._rates.get(world, Rate(0.0, 0.0))
        self._rates[world] = Rate(rate.samples + samples - last[2], rate.seconds + now - last[0])

    def restore(self, past: Past) -> None:
        """Take over what earlier coordinators knew; who was there is counted when it comes back."""
        self._expected = dict(past.since)
        self._tenures.extend(past.tenures)
        self._pauses.extend(past.pauses)
        self._growths.extend(past.growths)
        self._rates = dict(past.rates)
        self._restarted = past.restarted
        self._has_begun = past.has_begun

    def facts(self, now: float, **more: Any) -> Facts:
        """What is known; `more`: the fields of `Facts` that are not noted here."""
        present = (Tenure(now - since, False, now) for since in self._since.values())
        return Facts(
            restarted=self._restarted,
            pauses=tuple(self._pauses),
            tenures=(*self._tenures, *present),
            rates=dict(self._rates),
            growths=tuple(self._growths),
            time_left=self.time_left(),
            **more,
        )


class Payback:
    """`deciding.Growth` by the rule of `growth`, with what the coordinator noted in `history`.

    Args:
        policy: whose timeouts it keeps; None: our own short waits.
    """

    def __init__(self, policy: ElasticPolicy | None = None) -> None:
        self.history = GrowthHistory()
        self._rule = Rule(Patience() if policy is None else Patience.of(policy))

    def judge(self, now: float, world: int, possible: int, facts: GrowthFacts) -> Verdict:
        """As `deciding.Growth.judge`; `facts` tells who waits and how far the training is."""
        known = self.history.facts(
            now,
            first_ready=facts.waiting_since,
            last_ready=facts.last_ready,
            starting=facts.starting,
            largest=facts.largest,
            remaining=_remaining(world, facts),
        )
        return self._rule.judge(now, world, possible, known)


def _remaining(world: int, facts: GrowthFacts) -> float | None:
    """Seconds to the end of the training at the present speed; None: unknown."""
    speed = facts.rates.get(world)
    if facts.total_steps is None or not speed:
        return None
    return (facts.total_steps - facts.now_step) / speed
