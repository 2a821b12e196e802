"""What the daemons' complaints mean, in the words of a site file, and which are none: pure.

Every pattern was seen in a real slurmctld's or slurmd's log (22.05.8, 24.11.5 or 26.05.5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpctools.conf.preflight.model import Problem

# What a slurmctld says that has no past, cannot reach slurmdbd, or lacks programs that it does not need.
# The last three are what comes of going without slurmdbd, and of reaching no node.
HARMLESS = (
    r"MailProg|High latency for \d+ calls",
    r"mpi/pmix|MPI: Cannot create context|PMIx|plugin name for mpi/",
    r"default partition not set",
    r"(state|state save|fed_mgr_state) file",
    r"_shutdown_bu_thread",
    r"Sending PersistInit msg|failed to open persistent connection|Association database appears down",
    r"^error: \w*slurmdbd|DBD_|slurmdbd: .*(Connection|connection)",
    r"information gathered, but not stored|asked for it not to be stored",
    r"can only be used with SlurmDBD, ignoring",
    r"Could not open .*(usage|priority_last_decay)",
    r"^error: (Unable to |)get_addr_info",
    r"slurm_send_node_msg: .*Unexpected missing socket",  # whoever asked gave up
)


# What it says of a past that the configuration leaves behind on purpose; the jobs are named by `lost_job`.
OF_THE_PAST = (
    r"has vanished from configuration",
    r"lookup failure for node|invalid node specified",
    r"JobId=\d+",
    r"Killing job \d+: ",  # what it holds is less with the new files: lost, not wrong
    r"build_cg_bitmap: node_bitmap is NULL",  # a pending job that ended together with its partition
    r"getpwuid failed",
    r"Can't find parent id \d+ for assoc \d+",  # of accounts that were moved; slurmdbd tells it anew
    r"Reservation \S+ has ",  # what becomes of it is told by the line about its record
)
# Not marked as an error, and still one: what should have written the file did not.
_EMPTY = re.compile(r'file "([^"]+)" is empty')
_UNKNOWN_NODE = re.compile(r'lookup failure for node "?([^"\s]+)"?')
# A task of an array or a part of a heterogeneous job is `JobId=7_2(9)`: its own id is the last.
_ID = r"JobId=(?:\d+[_+][^\s(]*\()?(\d+)\)?"
_LOST = re.compile(
    rf"(?:Invalid (?:req_)?nodes? |Invalid partition |Node count mismatch |No partition for ).*{_ID}"
    rf"|Killing {_ID} on defunct partition"  # of a running one, from 25.11 on
    rf"|Aborting {_ID} due to "
    r"|Killing job (\d+)"
)


@dataclass(frozen=True)
class _Meaning:
    pattern: re.Pattern[str]
    meaning: str
    remedy: str


def _means(pattern: str, meaning: str, remedy: str) -> _Meaning:
    return _Meaning(re.compile(pattern, re.IGNORECASE), meaning, remedy)


_NOT_READ = "slurmctld does not start with this"
_MEANINGS: tuple[_Meaning, ...] = (
    _means(
        r"Invalid node names in partition (\S+)",
        r"partition \1 has nodes that no NodeName line names",
        r"name only node groups that have nodes, or add the nodes",
    ),
    _means(
        r"duplicate entry for partition (\S+)",
        r"two partitions are called \1",
        "give one of the departments' partitions another name",
    ),
    _means(
        r"Duplicated NodeName (\S+)",
        r"node \1 is declared twice",
        "name the node groups so that no two nodes are called alike",
    ),
    _means(
        r"unrecognized key: (\S+)",
        r"this release of Slurm has no setting \1",
        "look for a slip of the pen, and see that the configuration is for the installed release",
    ),
    _means(
        r"cannot stat file (\S+): ",
        r"the configuration needs the file \1, which is not there",
        "put the file there, or take out what names it",
    ),
    _means(r"Parse error in file (\S+) line (\d+)", r"line \2 of \1 cannot be read", "correct the line"),
    _means(
        r'"Include" failed in file (\S+) line (\d+)',
        r"the file that line \2 of \1 includes cannot be read",
        "correct that file",
    ),
    _means(
        r"Invalid hostnames in switch configuration: (\S+)",
        r"topology.conf has nodes that no NodeName line names: \1",
        "bring topology.conf and the nodes together",
    ),
    _means(
        r"No switches configured",
        "a topology is asked for, and topology.conf has no switch in it",
        "describe the switches, or leave the topology out",
    ),
    _means(
        r"Failed to load topology.yaml",
        "topology.yaml cannot be read, which also happens when it is empty",
        "write the topology into it, or remove the file",
    ),
    _means(
        r"Invalid GRES configured on node ([^:]+): (\S+)",
        r"node \1 has \2, a kind of resource that GresTypes does not name",
        "add the kind to GresTypes",
    ),
    _means(
        r"we have a shared gres of '(\w+)' but no gres that is sharing",
        r"a node has \1 in its Gres= without the gpu that \1 is a part of",
        "give the node its GPUs, too: Gres=gpu:...,shard:...",
    ),
    _means(
        r"failed to merge SHARED and SHARING configuration",
        "its gres.conf has no record of the GPUs that its shards or MPS are parts of, and it does not start",
        "give gres.conf a line with the node's GPUs (Name=gpu File=...), or take the shards out",
    ),
    _means(
        r'bad configuration, multiple configurations without "File"',
        "its gres.conf has another number of shards or MPS than slurm.conf, and it does not start",
        "state the same number in both",
    ),
    _means(
        r"(tres weight|TRES weight)",
        "a weight is given to a resource that is not counted",
        "add it to AccountingStorageTRES, or take the weight out",
    ),
    _means(
        r"invalid (AllowQ\w+|DenyQ\w+|QO?o?S) \(([^)]*)\)",
        r"slurmdbd does not know all of the QoS \2, and this release does not start without them",
        "bring the accounts and QoS to slurmdbd first",
    ),
    _means(
        r"No SlurmctldHost defined",
        "no controller is named",
        "name the hosts that run slurmctld under `cluster: controllers`",
    ),
    _means(
        r"Invalid user for SlurmUser (\S+),",
        r"there is no Unix account \1 here for the daemons",
        "make the account on every host, or name another under `cluster: slurm_user`",
    ),
    _means(
        r"Can't find plugin for (\S+)|cannot create \w+ context for (\S+)",
        r"this installation of Slurm has no plugin \1\2",
        "name one that is installed, or install the package that has it",
    ),
    _means(
        r"(\S+) value \(?\"?([^\")]*)\"?\)? is not a valid number",
        r"\1 is set to \2, which is no number",
        "write a number",
    ),
    _means(
        r"Purging invalid reservation record (\S+)",
        r"Slurm would delete the reservation \1, since what it is for goes: nodes, a partition or accounts",
        r"delete or change it first: scontrol delete reservationname=\1",
    ),
    _means(
        r"CLUSTER NAME MISMATCH",
        "the cluster was called otherwise before, and slurmctld does not start under a new name",
        "keep the name: accounting is kept under it",
    ),
    _means(
        r"UnkillableStepTimeout must be at least",
        "a node may be drained for a step that was only slow to end",
        "raise UnkillableStepTimeout to five times MessageTimeout, or lower that",
    ),
    _means(r"(Unable to process configuration file|read_slurm_conf reading)", _NOT_READ, ""),
    _means(
        r'file "([^"]+)" is empty',
        r"\1 is empty, so whatever should have written it did not",
        "fill the file (a comment is enough), or take out what includes it",
    ),
)


def plain(line: str) -> str:
    """A line without the time in front."""
    return re.sub(r"^\[[\dT:.-]+\] ", "", line).strip()


def unknown_node(line: str) -> str | None:
    """The node that a line says is unknown; None when it says nothing of the kind."""
    found = _UNKNOWN_NODE.search(line)
    return found[1] if found else None


def lost_job(line: str) -> int | None:
    """The job that a line says is lost; None when it says nothing of the kind."""
    found = _LOST.search(line)
    return int(next(filter(None, found.groups()))) if found else None


def problem(line: str, *, past: bool) -> Problem | None:
    """The problem that a line of slurmctld's log tells of; None when it tells of none.

    Args:
        line: the line.
        past: whether it was given the state of a live slurmctld.
    """
    said = plain(line)
    passed_over = (*HARMLESS, *(OF_THE_PAST if past else ()))
    sure = said.startswith("fatal: ") or _EMPTY.search(said)
    if not sure and (not said.startswith("error: ") or any(re.search(each, said) for each in passed_over)):
        return None
    for each in _MEANINGS:
        found = each.pattern.search(said)
        if found:
            return Problem(said, found.expand(each.meaning), found.expand(each.remedy))
    return Problem(said, _NOT_READ if said.startswith("fatal: ") else "slurmctld complains of this")
