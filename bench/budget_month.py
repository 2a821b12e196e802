"""A made-up month of a large site for the budget's bench: sacct's answers and the bill, always the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl

from hpctools.budget.bill_table import SCHEMA
from hpctools.budget.jobs import JobWindow
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite, NodeGroup
from hpctools.slurm.accounting import FIELDS, Window

LANES = 8
"""Jobs that run at the same time on a node, each with an eighth of it."""

_BUSY = 0.8
_PAIRS = 0.05
_HOURS = {"a100": "21.957625", "h100": "55.04", "spot": "9.881", "fat": "6.048"}
_OTHER = "2.0160000001"
_FORMAT = "%Y-%m-%dT%H:%M:%S"


@dataclass(frozen=True)
class Answers:
    """sacct's answers about a month, a file for each day.

    Attributes:
        folder: of the files.
    """

    folder: Path

    def windows(self, month: Month, now: int) -> Iterator[JobWindow]:
        """The days, as `Sacct` has them."""
        for day in month.days:
            text = (self.folder / f"{day}.txt").read_text()
            yield JobWindow.of_text(Window(day, day + timedelta(days=1), text))


@dataclass(frozen=True)
class Bill:
    """The bill of a month.

    Attributes:
        table: columns of `bill_table.SCHEMA`.
    """

    table: pl.DataFrame
    name: str = "aws-cur"

    def rows(self, month: Month) -> pl.DataFrame:
        """All of it."""
        return self.table


def write_jobs(site: BudgetSite, month: Month, count: int, folder: Path) -> int:
    """Write sacct's answers of each day; return how many bytes they have.

    Jobs follow each other on lanes of nodes, so that no node is held more than whole; some have two nodes.
    """
    jobs = _lines(_jobs(site, month, count))
    size = 0
    for day in month.days:
        begin = day_start(day)
        of_day = jobs.filter((pl.col("from") < begin + 86400) & (pl.col("to") > begin))
        text = "\n".join(of_day["line"].to_list()) + "\n"
        (folder / f"{day}.txt").write_text(text)
        size += len(text)
    return size


def bill(site: BudgetSite, month: Month, rows: int) -> Bill:
    """A bill with a row for each node, service and day, and what carries no tag."""
    nodes = [(group, node) for group in site.node_groups for node in group.nodes]
    services = max(1, rows // (len(nodes) * len(month.days)))
    tables = [_bill_day(day, nodes, services) for day in month.days]
    return Bill(pl.concat(tables).select(list(SCHEMA)))


def _jobs(site: BudgetSite, month: Month, count: int) -> pl.DataFrame:
    dice = np.random.default_rng(20261101)
    nodes = [(group, node) for group in site.node_groups if group.role == "compute" for node in group.nodes]
    lane = np.sort(dice.integers(0, len(nodes) * LANES, count))
    pair = (lane // LANES) < int(len(nodes) * _PAIRS)
    length = 86400 * len(month.days)
    each = length / (count / (len(nodes) * LANES))
    ran = np.maximum(1, dice.exponential(each * _BUSY, count)).astype(np.int64)
    pause = np.maximum(1, dice.exponential(each * (1 - _BUSY), count)).astype(np.int64)
    clock = np.cumsum(ran + pause)
    first = np.searchsorted(lane, lane, side="left")
    before = np.where(first > 0, clock[np.maximum(first - 1, 0)], 0)
    end = day_start(month.start) - 43_200 + clock - before
    # A lane that has more jobs than fit goes on in the next month; the last day's end is the bench's "now".
    table = pl.DataFrame({"lane": lane, "from": end - ran, "to": end, "pair": pair})
    number = pl.int_range(1, pl.len() + 1)
    place = pl.Series("place", [f"{node}" for _, node in nodes])
    groups = pl.Series("group", [group.name for group, _ in nodes])
    sizes = pl.DataFrame({"node": range(len(nodes)), "name": place, "group": groups, **_sizes(nodes)})
    labs = [account.name for account in site.accounts if account.level == "lab"]
    accounts = pl.DataFrame({"lab": range(len(labs)), "account": labs})
    return (
        table.with_columns(node=pl.col("lane") // LANES, lab=pl.Series(dice.integers(0, len(labs), count)))
        .with_columns(number.alias("number"), who=pl.Series(dice.integers(0, 4, count)))
        .join(sizes, on="node")
        .join(accounts, on="lab")
    )


def _sizes(nodes: list[tuple[NodeGroup, str]]) -> dict[str, list[int]]:
    return {
        "cpus": [group.cpus // LANES for group, _ in nodes],
        "memory": [group.memory_mb // LANES for group, _ in nodes],
        "gpus": [group.gpus // LANES for group, _ in nodes],
    }


def _lines(jobs: pl.DataFrame) -> pl.DataFrame:
    number, gpus = pl.col("number").cast(pl.String), pl.col("gpus")
    got = pl.format(
        "billing={},cpu={},energy={},{}mem={}M,node=1",
        "cpus",
        "cpus",
        pl.col("number") * 17,
        pl.when(gpus > 0).then(pl.format("gres/gpu:x={},gres/gpu={},", gpus, gpus)).otherwise(pl.lit("")),
        pl.col("memory") - pl.col("number") % 1000,
    )
    began = pl.from_epoch("from").dt.strftime(_FORMAT)
    fields = {
        "JobIDRaw": number,
        "Cluster": pl.lit("big"),
        "DBIndex": number,
        "User": pl.format("u{}", pl.col("lab") * 4 + pl.col("who")),
        "Account": pl.col("account"),
        "Partition": pl.col("group"),
        "QOS": pl.lit("normal"),
        "Submit": began,
        "Start": began,
        "End": pl.from_epoch("to").dt.strftime(_FORMAT),
        "Suspended": pl.lit("00:00:00"),
        "State": pl.lit("COMPLETED"),
        "AllocTRES": got,
        "NodeList": pl.col("name"),
        "Reservation": pl.lit(""),
    }
    assert tuple(fields) == FIELDS
    return jobs.select("from", "to", line=pl.concat_str(list(fields.values()), separator="|"))


def _bill_day(day: date, nodes: list[tuple[NodeGroup, str]], services: int) -> pl.DataFrame:
    rows = []
    for number, (group, node) in enumerate(nodes):
        for service in range(services):
            hours = Decimal(24) if service == 0 else Decimal(0)
            price = (
                Decimal(_HOURS.get(group.name, _OTHER)) if service == 0 else Decimal("0.0001234567") * number
            )
            money = price * 24
            rows.append((group.name, f"use-{service}", f"{money:f}", f"{hours:f}", f"i-{node}"))
    rows.append(("", "Support", "123.4567890123", "0", ""))
    columns = {"node_group": pl.String, "usage": pl.String, "amount": pl.String, "node_hours": pl.String}
    table = pl.DataFrame(rows, schema=columns | {"resource": pl.String}, orient="row")
    fixed = {"source": "aws-cur", "metric": "NetAmortizedCost", "currency": "USD", "service": "AmazonEC2"}
    more = {
        "charge": "usage",
        "capacity": "on-demand",
        "billing_account": "1",
        "invoice": "i",
        "cluster": "big",
    }
    words = {name: pl.lit(value) for name, value in (fixed | more).items()}
    return table.with_columns(day=pl.lit(day), estimated=pl.lit(False), **words)
