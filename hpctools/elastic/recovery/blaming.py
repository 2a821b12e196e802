"""Rules whose findings blame nobody, and that name only what is done to a culprit: no rung is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpctools.elastic.metrics import LOSS, OF_ALL
from hpctools.elastic.recovery.never import places_of_logs
from hpctools.elastic.recovery.settings import OF_A_CULPRIT, LogRule, Recovery

NOT_KNOWN = "it is not always known who keeps the others waiting"


def without_a_rung(values: Mapping[str, Any], recovery: Recovery) -> list[str]:
    """What is wrong with a policy that would end the run at a finding although `fail` is not in its `do`.

    Asked when a run is submitted, and of no policy that a run has already. With `mode: log` nothing is done.

    Args:
        values: the policy's, which `recovery.parse` has made a `recovery` of.

    Returns:
        A line for each such rule, which begins with its place in the file.
    """
    return [
        f"{place}.do: {why}, and {', '.join(do)} {'is' if len(do) == 1 else 'are'} done to who is to blame; "
        "add rollBack, restartAll or fail"
        for place, why, do in (*_of_numbers(recovery), *_of_time(recovery), *_of_logs(values, recovery))
        if recovery.enforce and why and not set(do).difference(OF_A_CULPRIT)
    ]


def _of_numbers(recovery: Recovery) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each rule's place, why nobody is to blame (empty: somebody is), and what it names to be done."""
    if (finite := recovery.non_finite) is not None:
        yield "metrics.nonFinite", _of_nobody(*finite.metrics), finite.do
    if (spike := recovery.spike) is not None:
        yield "metrics.lossSpike", _of_nobody(spike.metric), spike.do
    for place, rule in enumerate(recovery.metrics):
        yield f"metrics.rules[{place}]", _of_nobody(rule.metric), rule.do


def _of_time(recovery: Recovery) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Steps that do not come: of several workers that stand, or compute, none is the one."""
    if (stall := recovery.stall) is not None:
        yield "metrics.stalledStep", NOT_KNOWN, stall.do
    if (hang := recovery.hang) is not None:
        yield "metrics.hang", NOT_KNOWN, hang.do


def _of_logs(values: Mapping[str, Any], recovery: Recovery) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for place, rule in zip(places_of_logs(values), recovery.logs, strict=True):
        yield place, _of_silence(rule), rule.do


def _of_silence(rule: LogRule) -> str:
    timed = rule.start_s is not None or rule.every_s is not None
    return "nobody is to blame for a line that does not come" if timed else ""


def _of_nobody(*names: str) -> str:
    of_all = _one_for_all(*names)
    return f"nobody is to blame for {_words(of_all)} one for all workers" if of_all else ""


def _one_for_all(*names: str) -> tuple[str, ...]:
    return tuple(name for name in OF_ALL if name in names)


def _words(names: tuple[str, ...]) -> str:
    """`the loss, which is`; `the loss and grad_norm, which are`."""
    said = " and ".join("the loss" if name == LOSS else name for name in names)
    return f"{said}, which {'is' if len(names) == 1 else 'are'}"
