"""Does the cluster run as it was asked to?"""

from __future__ import annotations

import time
from collections.abc import Set

from hpctools.conf.apply.cluster import Cluster, Pause
from hpctools.conf.apply.request import Request
from hpctools.conf.gres_check import explain
from hpctools.errors import ApplyError, CommandError

_PAUSE_SECONDS = 0.3
_MOST_SHOWN = 5


def seconds_for(nodes: int) -> float:
    """How long a cluster of that many nodes may take to show what it has loaded."""
    return 20 + nodes * 0.02


def verify_configuration(request: Request, cluster: Cluster, sick: Set[str], pause: Pause) -> None:
    """Wait until slurmctld runs what the files say, and refuses no node that it took before.

    Args:
        sick: nodes that slurmctld refused before.

    Raises:
        ApplyError: it does not, within the time that the number of nodes allows; says what differs.
    """
    end = time.monotonic() + seconds_for(request.nodes)
    while troubles := _troubles(request, cluster, sick):
        if time.monotonic() >= end:
            more = f" and {len(troubles) - _MOST_SHOWN} more" if len(troubles) > _MOST_SHOWN else ""
            raise ApplyError(f"the cluster does not run as wanted: {'; '.join(troubles[:_MOST_SHOWN])}{more}")
        pause(_PAUSE_SECONDS)


def _troubles(request: Request, cluster: Cluster, sick: Set[str]) -> list[str]:
    plan = cluster.planner.plan(request.bundle, prune=request.prune)
    told = [f"cannot tell: {each}" for each in plan.unknown]
    told += [
        f"{change.area} {change.subject} {change.key} is {change.before}, not {change.after}"
        for change in plan.changes
        if not change.told
    ]
    return told + _refused(request, cluster, sick)


def _refused(request: Request, cluster: Cluster, sick: Set[str]) -> list[str]:
    """Nodes that are refused now and were not; a slurmctld that is busy may tell at the next look."""
    try:
        refused = cluster.daemons.sick()
    except CommandError as error:
        return [f"cannot tell which nodes are refused: {error.message}"]
    return [_refusal(name, why, request) for name, why in refused.items() if name not in sick]


def _refusal(name: str, why: str, request: Request) -> str:
    found = explain(name, why, request.gpus.get(name))
    return f"node {name} is refused: {why}" + (f" ({found.message}: {found.remedy})" if found else "")


def verify_accounts(request: Request, cluster: Cluster) -> None:
    """Read the accounts back.

    Raises:
        ApplyError: slurmdbd does not have what it was told.
    """
    left = cluster.accounts.left(request.bundle.accounts, prune=request.prune)
    if left:
        raise ApplyError(f"slurmdbd did not take: {'; '.join(left[:_MOST_SHOWN])}", "see the log of slurmdbd")
