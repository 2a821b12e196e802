"""What a run has used, over all Slurm jobs that it ever had. Pure; everything counted in whole seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

HUNDREDTH = 36  # seconds of an hour


class Accounted(Protocol):
    """What slurmdbd has of a job (`hpctools.slurm.accounting.JobRecord`)."""

    @property
    def job_id(self) -> int: ...  # noqa: D102
    @property
    def qos(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def submitted(self) -> int: ...  # noqa: D102
    @property
    def start(self) -> int | None: ...  # noqa: D102
    @property
    def end(self) -> int | None: ...  # noqa: D102
    @property
    def suspended_seconds(self) -> int: ...  # noqa: D102
    @property
    def gpus(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Item:
    """One job, or one run of a requeued job.

    Attributes:
        role: `baseline` or `replica`.
        seconds: that it ran, without those in which it was suspended.
        nodes, gpus: that it had.
    """

    job_id: int
    role: str
    qos: str
    state: str
    seconds: int
    nodes: int
    gpus: int

    @property
    def node_seconds(self) -> int:
        """Seconds times nodes."""
        return self.seconds * self.nodes

    @property
    def gpu_seconds(self) -> int:
        """Seconds times GPUs."""
        return self.seconds * self.gpus


@dataclass(frozen=True)
class Part:
    """The items of one QoS and role together."""

    qos: str
    role: str
    jobs: int
    node_seconds: int
    gpu_seconds: int


@dataclass(frozen=True)
class Bill:
    """What a run has used.

    Attributes:
        items: by job id and time.
        parts: by QoS and role; every item is in exactly one.
        unknown: jobs of the run that the accounting does not have.
    """

    items: tuple[Item, ...]
    parts: tuple[Part, ...]
    unknown: tuple[int, ...] = field(default=())

    @property
    def node_seconds(self) -> int:
        """Of all items."""
        return sum(item.node_seconds for item in self.items)

    @property
    def gpu_seconds(self) -> int:
        """Of all items."""
        return sum(item.gpu_seconds for item in self.items)


def bill(roles: dict[int, str], records: Iterable[tuple[Accounted, int]], created: float, now: float) -> Bill:
    """Add up a run.

    Args:
        roles: `baseline` or `replica` by the id of each of the run's jobs.
        records: what the accounting has, each with its number of nodes; ids that are not in `roles`, and
            jobs of before the run (Slurm uses ids again), do not count.
        created: when the run was, Unix seconds.
        now: up to when jobs that still run count, Unix seconds.
    """
    items = tuple(
        _item(record, nodes, roles[record.job_id], now)
        for record, nodes in sorted(records, key=lambda pair: (pair[0].job_id, pair[0].submitted))
        # slurmctld's clock need not be ours.
        if record.job_id in roles and record.submitted >= created - 60
    )
    known = {item.job_id for item in items}
    return Bill(items, _parts(items), tuple(sorted(set(roles) - known)))


def _item(record: Accounted, nodes: int, role: str, now: float) -> Item:
    if record.start is None:
        return Item(record.job_id, role, record.qos, record.state, 0, 0, 0)
    until = record.end if record.end is not None else int(now)
    seconds = max(0, until - record.start - record.suspended_seconds)
    return Item(record.job_id, role, record.qos, record.state, seconds, nodes, record.gpus)


def _parts(items: Sequence[Item]) -> tuple[Part, ...]:
    keys = sorted({(item.role, item.qos) for item in items})
    return tuple(_part([item for item in items if (item.role, item.qos) == key]) for key in keys)


def _part(items: Sequence[Item]) -> Part:
    return Part(
        items[0].qos,
        items[0].role,
        len({item.job_id for item in items}),
        sum(item.node_seconds for item in items),
        sum(item.gpu_seconds for item in items),
    )


def hours(seconds: Sequence[int]) -> list[Decimal]:
    """As hours with two digits, rounded so that they add up to their sum's own rounding.

    Whoever adds up a column gets the total below it.
    """
    floors = [each // HUNDREDTH for each in seconds]
    missing = (sum(seconds) + HUNDREDTH // 2) // HUNDREDTH - sum(floors)
    largest_rest = sorted(range(len(seconds)), key=lambda place: -(seconds[place] % HUNDREDTH))
    for place in largest_rest[: max(0, missing)]:
        floors[place] += 1
    return [Decimal(each) / 100 for each in floors]
