"""When it pays to grow: the rule that keeps a run from thrashing.

A resize costs a pause; more workers are faster for as long as they stay. Growing is worth it when

    expected tenure x gain > cost,   tenure and cost in seconds, gain as a share of the present speed,

and it waits besides until the newcomers have settled, until a restart is some time ago, and longer after
each growth that was undone at once. All of it is arithmetic on what `GrowthHistory` noted: it has no clock
and no state.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpctools.elastic.deciding import NOBODY, PATIENCE_SECONDS, SETTLE_SECONDS, Verdict
from hpctools.elastic.policy import ElasticPolicy

NEVER = float("-inf")
# Without figures: they change all the time, and a verdict is news only when it is another one.
PAYS = "it pays: expected tenure x gain is more than the cost"
PAYS_NOT = "it would not pay: expected tenure x gain is less than the cost"
NO_FASTER = "it would be no faster"


@dataclass(frozen=True)
class Patience:
    """How careful a run is with growing; all times in seconds.

    Attributes:
        settle: for how long the newest of the newcomers must be ready (scalingTimeoutInSeconds).
        patience: for how long the first of them waits while others are known to be starting; `settle` when
            the policy says that.
        whole: `settle` when all that the run may have are there, so that nobody is waited for.
        snooze: no growth for so long after a restart (scaleUpSnoozeTimeInSeconds).
        pause: what a resize is taken to cost before one was measured.
        tenure: what is expected of a replica before one has left; counts as `tenure_weight` of them.
        half_life: after so long what was seen of tenures and of undone growths counts half.
        rate_seconds: linear speed-up is believed as much as a measurement of this length.
        quick: a growth that is undone within so many times its cost counts against the next one.
        back_off, longest_back_off: after one such growth, and at most (backOffLimitInSeconds); doubles with
            each of them.
    """

    settle: float = SETTLE_SECONDS
    patience: float = PATIENCE_SECONDS
    whole: float = 0.0
    snooze: float = 0.0
    pause: float = 0.25
    tenure: float = 600.0
    tenure_weight: float = 1.0
    half_life: float = 1800.0
    rate_seconds: float = 60.0
    quick: float = 20.0
    back_off: float = 2.0
    longest_back_off: float = 600.0

    @classmethod
    def of(cls, policy: ElasticPolicy) -> Patience:
        """With what a policy says, and our own where it says nothing."""
        settle = cls.settle if policy.scaling_timeout_s is None else policy.scaling_timeout_s
        limit = cls.longest_back_off if policy.back_off_limit_s is None else policy.back_off_limit_s
        return cls(
            settle=settle,
            patience=cls.patience if policy.scaling_timeout_s is None else settle,
            whole=cls.whole if policy.scaling_timeout_s is None else settle,
            snooze=policy.scale_up_snooze_s or 0.0,
            longest_back_off=limit,
        )


@dataclass(frozen=True)
class Tenure:
    """For how long a replica's worker was there.

    Attributes:
        ended: whether it was taken away; else it is still there or left because we wanted so, and would have
            stayed longer by an unknown time.
        at: when that was known, the history's clock.
    """

    seconds: float
    ended: bool
    at: float


@dataclass(frozen=True)
class Rate:
    """What was measured at a size: samples in seconds of training."""

    samples: float
    seconds: float

    @property
    def per_second(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Facts:
    """What is known when growth is considered; times on the history's clock.

    Attributes:
        first_ready, last_ready: when the first and the last of those that wait became ready.
        starting: workers that were started and are not ready yet.
        largest: workers that the run may have at most; None: unknown.
        restarted: when the run last recovered from a loss or was restarted; its first start is none.
        pauses: seconds of the last measured resizes, oldest first.
        tenures: of replicas' workers, those that are there included.
        rates: by number of workers.
        growths: when the run grew and when that was undone by a loss; None: not yet. Oldest first.
        remaining: seconds that the training has left at the present speed; None: unknown.
        time_left: seconds until the run's time limit, which ends all its jobs; None: never, or unknown.
        unsaved: seconds of training that growing itself would lose, as far as that is expected.
    """

    first_ready: float = NEVER
    last_ready: float = NEVER
    starting: int = 0
    largest: int | None = None
    restarted: float = NEVER
    pauses: tuple[float, ...] = ()
    tenures: tuple[Tenure, ...] = ()
    rates: Mapping[int, Rate] = field(default_factory=dict)
    growths: tuple[tuple[float, float | None], ...] = ()
    remaining: float | None = None
    time_left: float | None = None
    unsaved: float = 0.0

    @property
    def at_most(self) -> float:
        """For how long anybody can stay: to the training's end or the run's, seconds."""
        known = [each for each in (self.remaining, self.time_left) if each is not None]
        return max(0.0, min(known, default=float("inf")))


class Rule:
    """The rule; see the module."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()

    def judge(self, now: float, world: int, possible: int, facts: Facts) -> Verdict:
        """Whether a run of `world` workers shall grow to `possible`.

        Args:
            now: on the clock of the facts.
            possible: the largest allowed size that those who are ready make.
        """
        if possible <= world:
            return Verdict(False, world, None, {"world": world, "possible": possible}, NOBODY)
        cost, gain = self.cost(facts) + facts.unsaved, self.gain(world, possible, facts)
        tenure = self.expected_tenure(now, facts)
        back_off, strikes = self.back_off(facts, now)
        numbers = {
            "world": world,
            "possible": possible,
            "expected_tenure_s": round(tenure, 3),
            "gain": round(gain, 4),
            "cost_s": round(cost, 4),
            "worth_s": round(tenure * gain, 3),
            "strikes": round(strikes, 2),
        }
        if facts.time_left is not None:
            numbers["time_left_s"] = round(facts.time_left, 3)
        if facts.unsaved:
            numbers["unsaved_s"] = round(facts.unsaved, 3)
        wait, why = max(self._waits(facts, back_off, whole=possible == facts.largest))
        if now < wait:
            return Verdict(False, world, wait, {**numbers, "wait_s": round(wait - now, 3)}, why)
        if tenure * gain <= cost:
            return self._too_dear(now, world, facts, numbers)
        return Verdict(True, possible, None, numbers, PAYS)

    def cost(self, facts: Facts) -> float:
        """Seconds of pauses: of growing and, later, of losing what was gained."""
        pause = statistics.median(facts.pauses) if facts.pauses else self._patience.pause
        return 2 * pause

    def gain(self, world: int, to: int, facts: Facts) -> float:
        """By which share of the present speed it will be faster: measured if that was long, else linear."""
        linear = to / world - 1
        old, new = facts.rates.get(world), facts.rates.get(to)
        if old is None or new is None or old.per_second <= 0:
            return linear
        measured = new.per_second / old.per_second - 1
        seconds = min(old.seconds, new.seconds)
        believed = seconds / (seconds + self._patience.rate_seconds)
        return believed * measured + (1 - believed) * linear

    def expected_tenure(self, now: float, facts: Facts) -> float:
        """For how long newcomers are expected to stay, seconds: the mean of an exponential life time.

        All time that replicas were there, over the number of them that were taken away; those that are still
        there count with their time only. Before that, the prior of `Patience`; old observations fade. Nobody
        stays beyond the end of the training, nor beyond that of the run's time limit.
        """
        lived, ended = self._lives(now, facts)
        return min(lived / ended, facts.at_most)

    def back_off(self, facts: Facts, now: float) -> tuple[float, float]:
        """Until when growth waits because earlier ones were undone at once, and how many count against it."""
        patience = self._patience
        limit = patience.quick * self.cost(facts)
        quick = [lost for grown, lost in facts.growths if lost is not None and lost - grown < limit]
        if not quick:
            return NEVER, 0.0
        last = max(quick)
        # Counted at the last one, so that waiting does not shorten the wait that it is for.
        strikes = sum(self._fades(last - lost) for lost in quick)
        seconds = patience.back_off * 2.0 ** (min(strikes, 60.0) - 1)
        return last + min(patience.longest_back_off, seconds), strikes

    def _waits(self, facts: Facts, back_off: float, *, whole: bool) -> list[tuple[float, str]]:
        patience = self._patience
        others = facts.first_ready + patience.patience if facts.starting and not whole else NEVER
        settle = patience.whole if whole else patience.settle
        return [
            (facts.last_ready + settle, "the newcomers have to stay for a while first"),
            (others, f"{facts.starting} more are starting: one resize is better than two"),
            (
                facts.restarted + patience.snooze if patience.snooze else NEVER,
                "a restart was a short time ago",
            ),
            (back_off, "earlier growths were undone at once"),
        ]

    def _too_dear(self, now: float, world: int, facts: Facts, numbers: dict[str, float]) -> Verdict:
        tenure, gain, cost = (numbers[key] for key in ("expected_tenure_s", "gain", "cost_s"))
        why = PAYS_NOT if gain > 0 else NO_FASTER
        alive = sum(not each.ended for each in facts.tenures)
        capped = facts.at_most <= tenure
        if gain <= 0 or capped or not alive:
            return Verdict(False, world, None, numbers, why)
        # Every second in which nobody is taken away adds to what is expected.
        lived, ended = self._lives(now, facts)
        wait = max(0.1, (cost / gain * ended - lived) / alive)
        return Verdict(False, world, now + wait, {**numbers, "wait_s": round(wait, 3)}, why)

    def _lives(self, now: float, facts: Facts) -> tuple[float, float]:
        patience = self._patience
        weights = [(each, self._fades(now - each.at)) for each in facts.tenures]
        lived = sum(weight * each.seconds for each, weight in weights)
        ended = sum(weight for each, weight in weights if each.ended)
        return patience.tenure_weight * patience.tenure + lived, patience.tenure_weight + ended

    def _fades(self, age: float) -> float:
        return float(0.5 ** (max(0.0, age) / self._patience.half_life))
