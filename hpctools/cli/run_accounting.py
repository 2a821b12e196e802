"""hp-status RUN --accounting: what a run has used, in text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from hpctools.elastic.folder import RunFolder
from hpctools.errors import CommandError, ElasticError
from hpctools.slurm import accounting
from hpctools.slurm.cli import told
from hpctools.submit.bill import Bill, bill, hours

_COLUMNS = ("QOS", "ROLE", "JOBS", "NODE HOURS", "GPU HOURS")


def bill_of(folder: RunFolder, now: float) -> Bill:
    """Ask slurmdbd for all jobs of a run, baselines and replicas that were replaced among them.

    Args:
        now: Unix seconds.

    Raises:
        ElasticError: the folder cannot be read.
        UnreachableError: slurmdbd does not answer.
        CommandError: sacct failed otherwise.
    """
    spec = folder.spec()
    created = datetime.fromisoformat(spec.created).timestamp()
    roles = _submitted(folder) | {record.job_id: record.role for record in folder.jobs()}
    first = datetime.fromtimestamp(created - 86400, timezone.utc).date()
    try:
        records = accounting.read_ids(sorted(roles), first)
    except CommandError as error:
        raise told(error) from None
    return bill(roles, [(each, len(accounting.expand(each.nodes))) for each in records], created, now)


def _submitted(folder: RunFolder) -> dict[int, str]:
    """The roles of the jobs of which the run's events tell: each is noted in two files, and one may fail."""
    try:
        told = [event.detail for event in folder.events() if event.event == "submitted"]
    except ElasticError:
        return {}  # the other one tells
    return {each["job_id"]: str(each.get("role", "")) for each in told if isinstance(each.get("job_id"), int)}


def bill_text(run_id: str, found: Bill) -> str:
    """A line for each QoS and role, and one for their sum."""
    parts = found.parts
    nodes = hours([part.node_seconds for part in parts])
    gpus = hours([part.gpu_seconds for part in parts])
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for part, node_hours, gpu_hours in zip(parts, nodes, gpus, strict=True):
        rows.append((part.qos, part.role, str(part.jobs), f"{node_hours:.2f}", f"{gpu_hours:.2f}"))
    jobs = str(sum(part.jobs for part in parts))
    rows.append(("total", "", jobs, f"{sum(nodes, Decimal()):.2f}", f"{sum(gpus, Decimal()):.2f}"))
    lines = [f"run {run_id}\n", *_aligned(rows)]
    if found.unknown:
        lines.append(f"not in the accounting (yet): {' '.join(map(str, found.unknown))}\n")
    return "".join(lines)


def bill_json(run_id: str, found: Bill) -> dict[str, Any]:
    """The same for programs, in seconds; every job is there."""
    return {
        "run": run_id,
        "node_seconds": found.node_seconds,
        "gpu_seconds": found.gpu_seconds,
        "parts": [asdict(part) for part in found.parts],
        "jobs": [
            {**asdict(item), "node_seconds": item.node_seconds, "gpu_seconds": item.gpu_seconds}
            for item in found.items
        ],
        "unknown": list(found.unknown),
    }


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = []
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  " + "  ".join([*words, *numbers]) + "\n")
    return lines
