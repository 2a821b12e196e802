"""The partitions that HyperPod's agent makes, closed to people: nothing of the site's limits is in them.

The agent makes `dev` of all nodes and a partition of each group, without a time limit and open to everybody:
a job there would go past the departments' partitions. Their lines are the agent's, so they are closed while
slurmctld runs; it forgets that when it starts or reads its files again, and the step is run again then.
"""

from __future__ import annotations

import re

from provision.failures import Failure
from provision.processes import call, must
from provision.step import Context

WHO = "root"
"""The Unix group that is let in still: slurmctld lets root and SlurmUser in anyway."""
_SECONDS = 20.0
_PARTITION = re.compile(r"(?m)^PartitionName=(\S+) .*?\bAllowGroups=(\S+)")


def is_done(context: Context) -> bool:
    """Whether each of them that is there is closed, or none is to be."""
    if not _wanted(context):
        return True
    try:
        return not _open(context)
    except Failure:
        return False


def do(context: Context) -> None:
    """Close them.

    Raises:
        Failure: slurmctld does not answer, or refuses.
    """
    for name in _open(context):
        must(["scontrol", "update", f"PartitionName={name}", f"AllowGroups={WHO}"], limit=_SECONDS)
        print(f"HyperPod's partition {name} is closed to all but root")


def _wanted(context: Context) -> list[str]:
    return list(context.settings.section("slurm").get("closed_partitions") or ())


def _open(context: Context) -> list[str]:
    done = call(["scontrol", "show", "partition", "--oneliner", "--all"], limit=_SECONDS)
    if done.code != 0:
        raise Failure(f"slurmctld does not tell its partitions: {done.last_words}")
    allowed = dict(_PARTITION.findall(done.out))
    return [name for name in _wanted(context) if allowed.get(name, WHO) != WHO]
