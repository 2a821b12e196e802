"""Nodes that do not serve, by the reason that Slurm keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hpctools.doctor.check import checks, fold
from hpctools.doctor.model import Finding
from hpctools.slurm.types import Node


@dataclass(frozen=True)
class Cause:
    """A kind of reason, found by words that Slurm or a cloud's resume program writes."""

    words: re.Pattern[str]
    why: str
    remedy: str


def _cause(words: str, why: str, remedy: str) -> Cause:
    return Cause(re.compile(words, re.IGNORECASE), why, remedy)


# Words: slurmctld/node_mgr.c and slurmctld/power_save.c, 22.05 to 26.05; capacity: AWS's resume programs.
CAUSES = (
    _cause(
        # The kind stands there as `gres/gpu` or, of one type, as `gpu:a100_1g.5gb`.
        r"(gres/|gpu:|shard)\S* count (too low|reported lower)",
        "the node has fewer of these GPUs, shards or MIG slices than its Gres= says, so Slurm takes it out",
        "look at `nvidia-smi -L` and `slurmd -G` on the node: repair it, or lower its count and reconfigure",
    ),
    _cause(
        r"Low RealMemory",
        "the node reports less memory than its RealMemory says",
        "set RealMemory to at most what `slurmd -C` prints there (95 % leaves room), then reconfigure",
    ),
    _cause(
        r"Low (CPUs|socket|Cores|TmpDisk)",
        "the node reports less than its line in slurm.conf says",
        "put what `slurmd -C` prints on the node into its line in slurm.conf, then reconfigure",
    ),
    _cause(
        # ICE is the short word for it, and part of many another one: device, service, notice, slice.
        r"InsufficientInstanceCapacity|InsufficientHostCapacity|insufficient capacity|stockout|(?-i:\bICE\b)",
        "the cloud had no such machine, and nothing takes the node up again by itself",
        "when there is capacity again: scontrol update nodename=NODE state=power_down, then resume",
    ),
    _cause(
        r"ResumeTimeout",
        "the machine did not join within ResumeTimeout: ResumeProgram failed, or it starts too slowly",
        "read ResumeProgram's log; raise ResumeTimeout if machines do come; then scontrol ... state=resume",
    ),
    _cause(
        r"Prolog error|Epilog error|health ?check|\bNHC\b",
        "a script on the node found it unfit, or failed itself",
        "read slurmd's log on the node; repair; then scontrol update nodename=NODE state=resume",
    ),
    _cause(
        r"Kill task failed",
        "processes of a job did not end within UnkillableStepTimeout, usually on a hanging file system",
        "look for processes in state D on the node; repair or reboot it; then state=resume",
    ),
    _cause(
        r"Not responding",
        "slurmd did not answer for SlurmdTimeout; its jobs were ended",
        "systemctl status slurmd on the node, its log, and the network to SlurmdPort; then state=resume",
    ),
    _cause(
        r"unexpectedly rebooted",
        "the node came back with a later boot time than slurmctld expected",
        "find out why it rebooted (journalctl -b -1), then scontrol update nodename=NODE state=resume",
    ),
)
_OUT = ("DOWN", "ERROR")
_SLEEPS = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})


def nodes_are_valid(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """A node that registered with less than its line says is INVALID_REG."""
    yield from _by_reason((node for node in nodes if "INVALID_REG" in node.flags), "registered as invalid")


def nodes_are_up(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """DOWN nodes, but for those that sleep to save power."""
    down = (
        node
        for node in nodes
        if node.state in _OUT and "INVALID_REG" not in node.flags and "POWERED_DOWN" not in node.flags
    )
    yield from _by_reason(down, "is down")


def nodes_wake_up(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """`down~`: powered down and down at once; ResumeProgram is never called for it."""
    stuck = [node for node in nodes if node.state in _OUT and "POWERED_DOWN" in node.flags]
    for node_names, reason in _grouped(stuck):
        yield Finding(
            node_names,
            f"is down while it is powered down (down~){_quoted(reason)}",
            "Slurm wakes only nodes that are idle; these stay away however long jobs wait",
            f"scontrol update nodename={node_names} state=resume",
        )


def nodes_respond(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """The star behind a state: slurmd does not answer now."""
    silent = [
        node.name
        for node in nodes
        if "NOT_RESPONDING" in node.flags and node.state not in _OUT and not _SLEEPS & set(node.flags)
    ]
    if silent:
        yield Finding(
            fold(silent),
            "slurmd does not answer",
            "no job starts there; after SlurmdTimeout the node is set down and its jobs are ended",
            "systemctl status slurmd on the node, its log, and the network to SlurmdPort",
        )


def nodes_registered(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """UNKNOWN: no slurmd of it was seen since slurmctld started."""
    unknown = [node.name for node in nodes if node.state == "UNKNOWN"]
    if unknown:
        yield Finding(
            fold(unknown),
            "slurmctld has not heard of it since it started",
            "no job starts there",
            "start slurmd there; `slurmd -D -vv` says why it cannot register",
        )


def nodes_are_drained_by_people(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """A drain with a reason that a program wrote; what a person drained is left to the person."""
    drained = [
        node
        for node in nodes
        if "DRAIN" in node.flags and node.state not in _OUT and "INVALID_REG" not in node.flags
    ]
    yield from _by_reason((node for node in drained if cause_of(node.reason)), "is drained")


def cause_of(reason: str) -> Cause | None:
    """The kind of a reason; None when it is in nobody's words that we know."""
    return next((cause for cause in CAUSES if cause.words.search(reason)), None)


def _by_reason(nodes: Iterable[Node], state: str) -> Iterator[Finding]:
    for names, reason in _grouped(nodes):
        cause = cause_of(reason)
        why = cause.why if cause else "no job starts there"
        remedy = (
            cause.remedy if cause else "see to the reason, then scontrol update nodename=NODE state=resume"
        )
        yield Finding(names, f"{state}{_quoted(reason)}", why, remedy.replace("NODE", names))


def _grouped(nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        by_reason.setdefault(node.reason, []).append(node.name)
    for reason, names in sorted(by_reason.items()):
        yield fold(names), reason


def _quoted(reason: str) -> str:
    return f": {reason}" if reason else ", and nobody said why"


CHECKS = checks(
    (nodes_are_valid, "nodes"),
    (nodes_are_up, "nodes"),
    (nodes_wake_up, "nodes"),
    (nodes_respond, "nodes"),
    (nodes_registered, "nodes"),
    (nodes_are_drained_by_people, "nodes"),
)
