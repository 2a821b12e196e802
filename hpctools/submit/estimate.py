"""What a submission will cost at most, from its time limit and what nodes last cost: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hpctools.submit.intent import Intent
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.times import minutes_of

_UNITS: dict[str, int | Fraction] = {"": 1, "M": 1, "K": Fraction(1, 1024), "G": 1024, "T": 1024**2}
_MOST_TASKS = 1_000_000
_AMOUNT = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_MOST = 10**15


@dataclass(frozen=True)
class Rate:
    """A node of a group: what it has, and what an hour of it costs."""

    node_group: str
    per_node_hour: Decimal
    currency: str
    cpus: int
    memory_mb: int
    gpus: int


@dataclass(frozen=True)
class Left:
    """What is left of an account's budget.

    Attributes:
        last: the day until which it is for, as the API tells it.
    """

    account: str
    amount: Decimal
    currency: str
    last: str


@dataclass(frozen=True)
class Asked:
    """What a submission asks for.

    Attributes:
        nodes: fewest and most.
        cpus, gpus: of all nodes together.
        memory_mb: of each node; 0 for what the partition gives.
        hours: its time limit; None when it states none.
        tasks: of an array; 1 for others.
    """

    partition: str
    nodes: tuple[int, int] = (1, 1)
    cpus: int = 1
    gpus: int = 0
    memory_mb: int = 0
    whole: bool = False
    hours: Fraction | None = None
    tasks: int = 1


@dataclass(frozen=True)
class Estimate:
    """What it costs if it runs to its time limit; for an hour where it states none.

    Attributes:
        low, high: on the cheapest and the dearest nodes that it may get, rounded to cents.
    """

    low: Decimal
    high: Decimal
    currency: str
    per_hour: bool = False


def estimate(asked: Asked, rates: Iterable[Rate], partitions: Mapping[str, list[str]]) -> Estimate | None:
    """What a submission costs; None when no node that it fits on has a rate."""
    groups = partitions.get(asked.partition) if asked.partition else None
    chosen = [rate for rate in rates if groups is None or rate.node_group in groups]
    hours = Fraction(1) if asked.hours is None else asked.hours
    costs = [
        share * count * Fraction(rate.per_node_hour) * hours * asked.tasks
        for rate in chosen
        for count in asked.nodes
        if (share := _share(asked, rate, count)) is not None
    ]
    if not costs:
        return None
    return Estimate(_cents(min(costs)), _cents(max(costs)), chosen[0].currency, asked.hours is None)


def read_asked(intent: Intent, agreed: NodeSizes | None = None) -> Asked:
    """What a submission asks for, as far as its options say; the rest is what sbatch takes for it.

    Args:
        agreed: the sizes of an elastic run by its policy file; None: by `--nodes` alone.
    """
    sizes = agreed or intent.nodes
    nodes = (sizes.minimum, sizes.maximum) if sizes is not None else _range(intent.effective("nodes"))
    tasks = _number(intent.effective("ntasks")) or nodes[0] * (
        _number(intent.effective("ntasks-per-node")) or 1
    )
    return Asked(
        partition=next(filter(None, (intent.effective("partition") or "").split(",")), ""),
        nodes=nodes,
        cpus=tasks * (_number(intent.effective("cpus-per-task")) or 1),
        gpus=_gpus(intent, nodes[0], tasks),
        memory_mb=_memory(intent.effective("mem")),
        whole=intent.wants_whole_nodes,
        hours=_hours(intent.effective("time")),
        tasks=_array(intent.effective("array")),
    )


def read_rates(answer: Mapping[str, Any]) -> tuple[list[Rate], dict[str, list[str]]]:
    """Rates and partitions as the API's /v1/rates tells them.

    Raises:
        ValueError, KeyError, TypeError: it is none of that.
    """
    rates = [
        Rate(
            str(each["node_group"]),
            _amount(each["per_node_hour"]),
            str(each["currency"]),
            _whole(each["cpus"]),
            _whole(each["memory_mb"]),
            _whole(each["gpus"]),
        )
        for each in answer["rates"]
    ]
    return rates, {
        str(name): [str(group) for group in groups] for name, groups in dict(answer["partitions"]).items()
    }


def read_left(answer: Mapping[str, Any]) -> Left:
    """What is left, as the API's outlook of an account tells it.

    Raises:
        ValueError, KeyError: it is none of that.
    """
    account, currency, last = (str(answer[word]) for word in ("account", "currency", "last"))
    return Left(account, _amount(answer["left"]), currency, last)


def _amount(stated: object) -> Decimal:
    if not isinstance(stated, str) or not _AMOUNT.fullmatch(stated):
        raise ValueError(f"{stated!r} is no amount")  # 1e999999999 would take long to be written
    return Decimal(stated)


def _whole(stated: object) -> int:
    if not isinstance(stated, int) or not 0 <= stated <= _MOST:
        raise ValueError(f"{stated!r} is no number of them")
    return stated


def _share(asked: Asked, rate: Rate, nodes: int) -> Fraction | None:
    """The part of each node that a job holds; None where it does not fit."""
    gpus = Fraction(asked.gpus, asked.nodes[0])
    cpus = Fraction(asked.cpus, asked.nodes[0])
    has = ((cpus, rate.cpus), (Fraction(asked.memory_mb), rate.memory_mb), (gpus, rate.gpus))
    if any(wanted > whole for wanted, whole in has):
        return None
    if asked.whole:
        return Fraction(1)
    return max((wanted / whole for wanted, whole in has if whole), default=Fraction(1))


def _gpus(intent: Intent, nodes: int, tasks: int) -> int:
    """The one option of several that says how many."""
    ways = (
        ("gpus", 1),
        ("gpus-per-node", nodes),
        ("gpus-per-task", tasks),
    )
    for name, times in ways:
        stated = intent.effective(name)
        if stated:
            return times * sum(_count(part.rpartition(":")[2]) for part in stated.split(","))
    return nodes * sum(_gres(part) for part in (intent.effective("gres") or "").split(","))


def _gres(part: str) -> int:
    name, *rest = part.removeprefix("gres/").split(":")
    return _count(rest[-1] if rest else "") if name == "gpu" else 0


def _count(text: str) -> int:
    """How many; one where only the kind is named. None at all is a number, too."""
    return int(text) if text.isascii() and text.isdecimal() else 1


def _range(text: str | None) -> tuple[int, int]:
    low, _, high = (text or "1").partition("-")
    first = _number(low) or 1
    return first, max(first, _number(high) or first)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0


def _memory(text: str | None) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", (text or "").upper())
    return int(int(found[1]) * _UNITS[found[2]]) if found else 0


def _hours(text: str | None) -> Fraction | None:
    minutes = minutes_of(text) if text else None
    return Fraction(minutes, 60) if minutes else None


def _array(text: str | None) -> int:
    """How many tasks an array has; 1 where it cannot be told."""
    count = 0
    for part in (text or "").partition("%")[0].split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if not found:
            return 1
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        count += max(0, (last - first) // step + 1) if step else 1
    return min(max(1, count), _MOST_TASKS)


def _cents(cost: Fraction) -> Decimal:
    return Decimal(round(cost * 100)).scaleb(-2)
