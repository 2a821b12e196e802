"""Whether the partitions that an elastic run asks for can ever have its jobs: pure."""

from __future__ import annotations

from collections.abc import Sequence

from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.errors import SubmitError
from hpctools.slurm.limits import Account, Limits
from hpctools.slurm.types import Partition
from hpctools.submit.request import Request


def check_partitions(
    request: Request, asked: str | None, partitions: Sequence[Partition], limits: Limits | None
) -> None:
    """Refuse what no partition of those that the run asks for would ever give it.

    Args:
        asked: value of `--partition`; None: the default partition.
        partitions: the cluster's.
        limits: what the user may have; None: not known, and then who may use a partition is not checked.

    Raises:
        SubmitError: says which partition allows what, and what to ask for instead.
    """
    chosen = _chosen(asked, partitions)
    if not chosen:
        return
    _check_nodes(request, chosen)
    _check_largest_job(request, chosen, limits)
    _check_smallest_job(request, chosen, limits)
    if limits is not None:
        _check_admission(request, chosen, limits)


def only_from(request: Request, asked: str | None, partitions: Sequence[Partition]) -> str | None:
    """What a person should know when no node of the partitions may submit to them; None: one may.

    A run's own nodes submit its replica jobs, and a baseline job in a lost one's place.

    Returns:
        One line with its remedy.
    """
    closed = [each for each in _chosen(asked, partitions) if not _submits_to_itself(each)]
    if not closed or not request.sizes.largest_step or len(closed) < len(_chosen(asked, partitions)):
        return None
    names = ",".join(each.name for each in closed)
    return (
        f"the run will stay at its smallest size: partition {names} takes jobs from "
        f"{_some(closed[0].submit_hosts)} only (AllocNodes), and the run's own nodes submit its replica "
        "jobs; ask the operators to add these nodes"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _submits_to_itself(partition: Partition) -> bool:
    return not partition.submit_hosts or not set(partition.nodes).isdisjoint(partition.submit_hosts)


def _chosen(asked: str | None, partitions: Sequence[Partition]) -> list[Partition]:
    if asked is None:
        return [partition for partition in partitions if partition.is_default]
    by_name = {partition.name: partition for partition in partitions}
    names = [name for name in asked.split(",") if name]  # sbatch passes over what is empty (`nlp,`)
    for name in names:
        if name not in by_name:
            raise SubmitError(
                f"there is no partition {name}", f"this cluster has: {', '.join(sorted(by_name))}"
            )
    return [by_name[name] for name in names]


def _check_nodes(request: Request, chosen: Sequence[Partition]) -> None:
    """All jobs of the run together; each of them has its nodes in one of the partitions."""
    names, together = ",".join(each.name for each in chosen), _nodes_together(chosen)
    if request.sizes.maximum > together:
        raise SubmitError(
            f"{request.said}: partition {names} has only {together} nodes",
            f"ask for at most {together}, or for another partition (see `sinfo -s`)",
        )
    largest = max(chosen, key=lambda partition: partition.total_nodes)
    if max(request.sizes.minimum, request.sizes.largest_step) > largest.total_nodes:
        raise SubmitError(
            f"{request.said}: a job has all of its nodes in one partition, and {largest.name} has only "
            f"{largest.total_nodes}",
            f"take a minimum and steps of at most {largest.total_nodes} nodes",
        )


def _nodes_together(chosen: Sequence[Partition]) -> int:
    """Each node once, where it is known which they are."""
    total = sum(each.total_nodes for each in chosen)
    known = len(chosen) > 1 and all(each.nodes for each in chosen)
    return len({node for each in chosen for node in each.nodes}) if known else total


def _check_largest_job(request: Request, chosen: Sequence[Partition], limits: Limits | None) -> None:
    """Against MaxNodes, which a QoS may go beyond (its flag PartitionMaxNodes)."""
    if any(partition.max_nodes is None for partition in chosen):
        return
    widest = max(chosen, key=lambda partition: partition.max_nodes or 0)
    most, beyond = widest.max_nodes or 0, limits.beyond_partitions if limits else frozenset()
    said = f"{request.said}: a job in partition {widest.name} may have at most {most} nodes"
    qos = limits.qos_of(request.account, request.qos, request.partitions) if limits else ""
    if request.sizes.minimum > most and qos not in beyond:
        raise SubmitError(said, f"lower the minimum to {most}")
    if request.sizes.largest_step > most and ELASTIC_QOS not in beyond:
        raise SubmitError(
            f"{said} (MaxNodes), and a replica job of this run {request.sizes.largest_step}",
            f"take smaller steps: at most {most} nodes from one size to the next",
        )


def _check_smallest_job(request: Request, chosen: Sequence[Partition], limits: Limits | None) -> None:
    """Against MinNodes, which a QoS may go below (its flag PartitionMinNodes)."""
    lowest = min(chosen, key=lambda partition: partition.min_nodes)
    least, below = lowest.min_nodes, limits.below_partitions if limits else frozenset()
    said = f"{request.said}: a job in partition {lowest.name} has at least {least} nodes"
    qos = limits.qos_of(request.account, request.qos, request.partitions) if limits else ""
    if request.sizes.minimum < least and qos not in below:
        raise SubmitError(
            f"{said} (MinNodes)", f"raise the minimum to {least}, or take another partition (-p)"
        )
    if 0 < request.sizes.smallest_step < least and ELASTIC_QOS not in below:
        raise SubmitError(
            f"{said} (MinNodes), and a replica job of this run {request.sizes.smallest_step}",
            f"take larger steps: at least {least} nodes from one size to the next",
        )


def _check_admission(request: Request, chosen: Sequence[Partition], limits: Limits) -> None:
    """Whether one of the partitions is for the run's account and QoS, and for the QoS of its replica jobs."""
    names = "partition " + ",".join(partition.name for partition in chosen)
    account = (
        limits.account(request.account, request.partitions) if "associations" in limits.enforced else None
    )
    if account and not (chosen := [each for each in chosen if _admits_account(each, account)]):
        raise SubmitError(
            f"{names} is not for account {account.name} (AllowAccounts, DenyAccounts)",
            "charge another account (--account), or ask for another partition (see `sinfo -s`)",
        )
    if "qos" not in limits.enforced:
        return
    qos = limits.qos_of(request.account, request.qos, request.partitions)
    if qos and "," not in qos and not any(_admits_qos(each, qos) for each in chosen):
        raise SubmitError(
            f"{names} is not for jobs of QoS {qos} (AllowQos, DenyQos)", _other_qos(chosen, account)
        )
    if request.sizes.largest_step and not any(_admits_qos(each, ELASTIC_QOS) for each in chosen):
        raise SubmitError(
            f"{names} is not for jobs of QoS {ELASTIC_QOS}, with which replica jobs run (AllowQos, DenyQos)",
            f"ask its operators to allow {ELASTIC_QOS} there, name another partition (--partition), or fix "
            "the size: --nodes N:N",
        )


def _admits_account(partition: Partition, account: Account) -> bool:
    """Accounts below one that is named are meant, too, in some releases of Slurm; sbatch knows in which.

    So it is with capitals.
    """
    if allowed := set(map(str.lower, partition.allow_accounts)):
        return not {each.lower() for each in (account.name, *account.above)}.isdisjoint(allowed)
    return account.name not in partition.deny_accounts


def _admits_qos(partition: Partition, qos: str) -> bool:
    """Slurm takes no notice of the case of a QoS's name."""
    allowed, denied = (set(map(str.lower, each)) for each in (partition.allow_qos, partition.deny_qos))
    return qos.lower() in allowed if allowed else qos.lower() not in denied


def _other_qos(chosen: Sequence[Partition], account: Account | None) -> str:
    """What to give instead of a QoS that is not for a partition: one that is, and that the account has."""
    there = dict.fromkeys(name for each in chosen for name in each.allow_qos if name.lower() != ELASTIC_QOS)
    may_have = [each.lower() for each in account.qos] if account else [each.lower() for each in there]
    usable = [each for each in there if each.lower() in may_have]
    if there and not usable:
        return f"take another partition (-p), or ask for one of these QoS: {', '.join(there)}"
    return f"give --qos one of: {', '.join(usable)}" if usable else "give another --qos, or another partition"
