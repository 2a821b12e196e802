"""What departments spend on made-up jobs, worked out by the budget."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from hpctools.budget.attribution import attribute
from hpctools.budget.cost_explorer import parse
from hpctools.budget.from_site import budget_site
from hpctools.budget.month import Month, day_start
from hpctools.sandbox.bill import METRIC, cost_and_usage
from hpctools.sandbox.blueprint import Blueprint
from hpctools.sandbox.past import PastJob
from hpctools.slurm.accounting import JobRecord


def record(job: PastJob, cluster: str = "uni-gpu") -> JobRecord:
    """A job as sacct should tell it, but for the database's own index."""
    shape = job.shape
    prefix, numbers = shape.group, [int(node.rpartition("-")[2]) for node in shape.nodes]
    folded = f"{prefix}-{numbers[0]}" if len(numbers) == 1 else f"{prefix}-[{_ranges(numbers)}]"
    return JobRecord(
        cluster=cluster,
        dbindex=job.id,
        job_id=job.id,
        user=job.user,
        account=job.account,
        partition=job.partition,
        qos=job.tier,
        submitted=shape.submitted,
        start=shape.start,
        end=shape.end,
        suspended_seconds=0,
        state=shape.state,
        cpus=shape.cpus,
        memory_mb=shape.memory_mb,
        gpus=shape.gpus,
        shards=0,
        nodes=folded,
        reservation="",
    )


def spent(drawn: Blueprint, jobs: Iterable[PastJob], month: Month) -> dict[str, Decimal]:
    """Each department's cost of a whole month, its part of idle nodes included."""
    over = day_start(month.end)
    tree = budget_site(drawn.site)
    bill = cost_and_usage(drawn.site, month, over, drawn.node_counts)
    rows = parse([bill], METRIC, drawn.site.billing.node_group_tag)
    lines = attribute(rows, [record(job) for job in jobs], tree, month, over).lines
    return {
        department.name: sum(
            (line.amount for line in lines if line.key.account in tree.subtree(department.name)), Decimal(0)
        )
        for department in drawn.site.departments
    }


def _ranges(numbers: list[int]) -> str:
    """Numbers as Slurm folds them: `1-2,4`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
