"""Rules whose findings blame nobody, and that name only what is done to a culprit: nothing could be done."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.elastic.metrics import LOSS, OF_ALL
from hpctools.elastic.recovery.settings import OF_A_CULPRIT, Recovery


def without_a_rung(recovery: Recovery) -> list[str]:
    """What is wrong with a policy whose first finding would end the run although `fail` is not in its `do`.

    Asked when a run is submitted, and of no policy that a run has already. With `mode: log` nothing is done.

    Returns:
        A line for each such rule, which begins with its place in the file.
    """
    return [
        f"{place}: nobody is to blame for {_words(names)} one for all workers, and {', '.join(do)} "
        f"{'is' if len(do) == 1 else 'are'} done to who is; add rollBack, restartAll or fail"
        for place, names, do in _of_all(recovery)
        if recovery.enforce and names and not set(do).difference(OF_A_CULPRIT)
    ]


def _of_all(recovery: Recovery) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Each rule's place, its numbers that are one for all workers, and what it names to be done."""
    if (finite := recovery.non_finite) is not None:
        yield "metrics.nonFinite.do", _one_for_all(*finite.metrics), finite.do
    if (spike := recovery.spike) is not None:
        yield "metrics.lossSpike.do", _one_for_all(spike.metric), spike.do
    for place, rule in enumerate(recovery.metrics):
        yield f"metrics.rules[{place}].do", _one_for_all(rule.metric), rule.do


def _one_for_all(*names: str) -> tuple[str, ...]:
    return tuple(name for name in OF_ALL if name in names)


def _words(names: tuple[str, ...]) -> str:
    """`the loss, which is`; `the loss and grad_norm, which are`."""
    said = " and ".join("the loss" if name == LOSS else name for name in names)
    return f"{said}, which {'is' if len(names) == 1 else 'are'}"
