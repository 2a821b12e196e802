"""Care for a shared login node: who uses too much too long is slowed down, told why, and let go again. Pure.

Somebody above their part collects impatience, the faster the more it is; below it, impatience fades. When it
is full a penalty begins: its level decides what part is left. Each level ends by itself, and the one above it
follows until none is left. A relapse begins a level further; relapses are forgotten with time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hpctools.login.durations import spelt
from hpctools.site.login_care import Care

GIB = 1 << 30
_STEEPEST = 4.0


@dataclass(frozen=True)
class Standing:
    """How somebody stands on a node.

    Attributes:
        impatience: 0 to 1; at 1 a penalty begins.
        level: of the penalty, from 1; 0 is none.
        until: when the level ends, seconds of any clock; meaningless at level 0.
        relapses: penalties that are remembered.
        free_since: when the last penalty ended or a relapse was forgotten.
    """

    impatience: float = 0.0
    level: int = 0
    until: float = 0.0
    relapses: int = 0
    free_since: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.impatience or self.level or self.relapses)


@dataclass(frozen=True)
class Limits:
    """What the kernel is told of a person; None is no limit.

    Attributes:
        cpus: processors.
        memory_high: bytes above which their programs are slowed down.
        memory_most: bytes above which one of them is ended.
    """

    cpus: float | None = None
    memory_high: int | None = None
    memory_most: int | None = None


@dataclass(frozen=True)
class Reach:
    """What of a person's programs their limits reach.

    Attributes:
        missed: one that they do not reach; empty when they reach all.
        is_none: they reach nothing of what runs.
    """

    missed: str = ""
    is_none: bool = False


ALL = Reach()


def excess(cpus: float, memory: int, care: Care) -> float:
    """How many times their part somebody uses: of processors or of memory, whichever is more."""
    return max(cpus / care.cpus, memory / (care.memory_gib * GIB))


def step(standing: Standing, used: float, seconds: float, now: float, care: Care) -> Standing:
    """How somebody stands after some time.

    Args:
        used: `excess` over this time.
        seconds: how long that was.
        now: the time at its end.
    """
    if standing.level:
        return _eased(standing, now, care) if now >= standing.until else standing
    standing = _forgetting(standing, now, care)
    if used > 1:
        impatience = min(1.0, standing.impatience + seconds / care.patience * min(used, _STEEPEST))
    else:
        impatience = max(0.0, standing.impatience - seconds / care.patience)
    if impatience < 1:
        return replace(standing, impatience=impatience)
    level = min(len(care.levels), 1 + standing.relapses)
    return Standing(0.0, level, now + care.penalty, standing.relapses + 1)


def _eased(standing: Standing, now: float, care: Care) -> Standing:
    level = standing.level - 1
    return replace(standing, level=level, until=now + care.penalty if level else 0.0, free_since=now)


def _forgetting(standing: Standing, now: float, care: Care) -> Standing:
    passed = int((now - standing.free_since) // care.forget_after) if standing.relapses else 0
    if passed < 1:
        return standing
    forgotten = standing.free_since + passed * care.forget_after
    return replace(standing, relapses=max(0, standing.relapses - passed), free_since=forgotten)


def limits(standing: Standing, care: Care) -> Limits:
    """What the kernel is told."""
    most = int(care.most_memory_gib * GIB) if care.most_memory_gib is not None else None
    if not standing.level:
        return Limits(care.most_cpus, None, most)
    part = care.levels[standing.level - 1]
    return Limits(round(part * care.cpus, 2), int(part * care.memory_gib * GIB), most)


def message(
    before: Standing,
    after: Standing,
    now: float,
    care: Care,
    used: tuple[float, int, str],
    *,
    holds_memory: bool = True,
    reach: Reach = ALL,
) -> str | None:
    """What somebody is told when their penalty changes; None when it does not, or limits nothing and ends.

    Args:
        used: processors, bytes, and the program that used the most.
        holds_memory: whether the kernel slows down for want of memory; else nobody is told of such a limit.
        reach: of the limits; nobody is told that they hold what they do not reach.
    """
    if after.level == before.level or (reach.is_none and after.level < before.level):
        return None
    if not after.level:
        return "This login node's limit on your programs is over. Thank you for leaving room for others."
    left, time = _left(after, now, care, holds_memory=holds_memory)
    if after.level < before.level:
        left = f"{left} for the next {time}{_but(reach)}"
        return f"The limit on your programs on this login node is eased: {left}."
    return f"You have used {_used(used)}. {_part_of_one(care)} {_from_now_on(left, time, reach)} {_WAY_OUT}"


def _from_now_on(left: str, time: str, reach: Reach) -> str:
    if reach.is_none:
        return f"{_powerless(reach)}: please have it use less."
    if reach.missed:
        return (
            f"Your programs go on with {left}{_but(reach)}: please have these use less. The limit eases by "
            f"itself in {time}."
        )
    return f"Your programs go on with {left}; the limit eases by itself in {time}."


def _but(reach: Reach) -> str:
    return f", but for those that the limit does not reach, such as {reach.missed}" if reach.missed else ""


def _powerless(reach: Reach) -> str:
    return f"This login node cannot slow down what you run now, such as {reach.missed}"


def reminder(
    standing: Standing,
    now: float,
    care: Care,
    used: tuple[float, int, str],
    *,
    holds_memory: bool = True,
    reach: Reach = ALL,
) -> str:
    """What somebody under a penalty is told who was not there when it began.

    Args:
        used: what it began with, as of `message`.
        holds_memory, reach: as of `message`.
    """
    left, time = _left(standing, now, care, holds_memory=holds_memory)
    had = f"you had used {_used(used)}. {_part_of_one(care)}"
    if reach.is_none:
        return f"{_powerless(reach)}, and {had} Please have it use less. {_WAY_OUT}"
    return (
        f"Your programs on this login node are limited to {left} for the next {time}{_but(reach)}: "
        f"{had} The limit eases by itself. {_WAY_OUT}"
    )


_WAY_OUT = "Long or large work belongs into a job: hp-submit --help."


def _left(standing: Standing, now: float, care: Care, *, holds_memory: bool) -> tuple[str, str]:
    """What is left under a penalty, and for how long."""
    limit = limits(standing, care)
    memory = f" and {(limit.memory_high or 0) / GIB:.1f} GiB" if holds_memory else ""
    return f"{limit.cpus:g} processors{memory}", spelt(standing.until - now)


def _used(used: tuple[float, int, str]) -> str:
    cpus, memory, most = used
    by = f", most of it by {most}" if most else ""
    return f"{cpus:.1f} processors and {memory / GIB:.1f} GiB of this login node{by}"


def _part_of_one(care: Care) -> str:
    return (
        f"At length {care.cpus:g} processors and {care.memory_gib:g} GiB are one person's part, so that it "
        "stays quick for everybody."
    )
