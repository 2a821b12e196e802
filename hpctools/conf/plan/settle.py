"""The edge: a plan for which slurmctld is asked once more, where squeue leaves open what the plan hangs on.

Of jobs of one CPU a node squeue shows the same whether they ask for memory by CPU or by node. With whole
nodes, whole cores or the CPUs that come with GPUs the one is many times the other. `scontrol show job` tells,
1 kB a job and of all jobs or one, so that it is asked only when a job's fate hangs on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from hpctools.conf.bundle import Bundle
from hpctools.conf.plan.compare import make_plan
from hpctools.conf.plan.demand import Demand, by_cpu, read_memory_by_cpu
from hpctools.conf.plan.live import Live
from hpctools.conf.plan.model import Plan
from hpctools.conf.plan.partition_terms import KEYS
from hpctools.conf.plan.read import SHOW, answer
from hpctools.slurm.ask import Ask, commands
from hpctools.slurm.states import WAITING
from hpctools.slurm.versions import Release


def settled_plan(
    wanted: Bundle,
    live: Live,
    *,
    folder: Path,
    release: Release | None = None,
    prune: bool = False,
    jobs_keep: bool = True,
    ask: Ask | None = None,
) -> Plan:
    """Compare a bundle with what there is, as `make_plan` does; ask how jobs want memory where it matters.

    Args:
        ask: runs Slurm's commands; `commands(folder)` when None.
        wanted, live, folder, release, prune, jobs_keep: see `make_plan`.

    Raises:
        HpctoolsError: the bundle's slurm.conf cannot be understood.
    """
    planned = partial(make_plan, wanted, folder=folder, release=release, prune=prune, jobs_keep=jobs_keep)
    plan = planned(live)
    unclear = _unclear(live)
    if not unclear or not (_shape_places(plan) or (plan.changes and _limits_memory(wanted))):
        return plan
    otherwise = planned(replace(live, demands={**live.demands, **unclear}))
    doubtful = {job for job, _ in _fates(plan) ^ _fates(otherwise)}
    if not doubtful:
        return plan
    told, silence = answer(
        lambda: read_memory_by_cpu((ask or commands(folder))((*SHOW, "job"))),
        "jobs that may ask for memory by CPU are taken to ask for it by node",
    )
    settled = {job: unclear[job] for job in doubtful if (told or {}).get(job)}
    return planned(replace(live, demands={**live.demands, **settled}, unknown=(*live.unknown, *silence)))


def _shape_places(plan: Plan) -> bool:
    """Whether nodes or partitions change, and with them what jobs take or may take."""
    return any(change.area in ("node", "partition") or change.key in KEYS for change in plan.changes)


def _limits_memory(wanted: Bundle) -> bool:
    tree = wanted.accounts
    stated = (
        *(each.settings for each in tree.qos),
        *(each.settings for each in tree.accounts),
        *(each.settings for each in tree.associations),
    )
    return any("mem=" in value for settings in stated for value in settings.values())


def _fates(plan: Plan) -> set[tuple[int, bool]]:
    """The jobs that a plan disturbs, and whether they only wait longer."""
    return {(job.id, job.waits) for job in plan.jobs}


def _unclear(live: Live) -> Mapping[int, Demand]:
    """What waiting jobs take if their memory comes with each CPU, where that is not known."""
    waiting = (job.id for job in live.jobs if job.state in WAITING and job.id in live.demands)
    return {job: by_cpu(live.demands[job]) for job in waiting if live.demands[job].unclear}
