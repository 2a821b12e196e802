"""Rules whose findings blame nobody, and that name only what is done to a culprit: nothing could be done."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.elastic.metrics import LOSS
from hpctools.elastic.recovery.settings import OF_A_CULPRIT, Recovery


def without_a_rung(recovery: Recovery) -> list[str]:
    """What is wrong with a policy whose first finding would end the run although `fail` is not in its `do`.

    Asked when a run is submitted, and of no policy that a run has already. With `mode: log` nothing is done.

    Returns:
        A line for each such rule, which begins with its place in the file.
    """
    return [
        f"{place}: nobody is to blame for the loss, which is one for all workers, and {', '.join(do)} "
        f"{'is' if len(do) == 1 else 'are'} done to who is; add rollBack, restartAll or fail"
        for place, do in _of_the_loss(recovery)
        if recovery.enforce and not set(do).difference(OF_A_CULPRIT)
    ]


def _of_the_loss(recovery: Recovery) -> Iterator[tuple[str, tuple[str, ...]]]:
    if recovery.non_finite is not None and LOSS in recovery.non_finite.metrics:
        yield "metrics.nonFinite.do", recovery.non_finite.do
    if recovery.spike is not None and recovery.spike.metric == LOSS:
        yield "metrics.lossSpike.do", recovery.spike.do
    for place, rule in enumerate(recovery.metrics):
        if rule.metric == LOSS:
            yield f"metrics.rules[{place}].do", rule.do
