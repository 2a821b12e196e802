"""A compiled site for a cluster whose slurm.conf somebody else writes: HyperPod's agent. Pure.

What is ours goes into one file that the agent's slurm.conf includes. The agent knows the nodes' names and
addresses, and the lifecycle scripts fill them in on the controller: `@group:NAME@` stands for the nodes of a
group, `@controller@` for the host of slurmdbd.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpctools.conf.account_changes import Call
from hpctools.conf.account_difference import difference
from hpctools.conf.accounts import AccountTree
from hpctools.conf.bundle import Bundle, File
from hpctools.conf.facts import Facts
from hpctools.conf.gres import group_gres
from hpctools.conf.sync import additions, bootstrap
from hpctools.conf.topology import compute_groups
from hpctools.errors import UsageError
from hpctools.site.hostlist import expand
from hpctools.site.model import Site

INCLUDE = "hpctools.conf"

AGENT_OWNED = frozenset(
    {
        "clustername",
        "slurmctldhost",
        "nodename",
        "taskplugin",
        "topologyplugin",
        "topologyparam",
        # Where its daemons listen, write and live: moved from under them, they and the agent lose each other.
        "authtype",
        "slurmuser",
        "slurmctldport",
        "slurmdport",
        "slurmctldparameters",
        "statesavelocation",
        "slurmdspooldir",
        "slurmctldpidfile",
        "slurmdpidfile",
        "slurmctldlogfile",
        "slurmdlogfile",
        "mpidefault",
    }
)
"""Keys of slurm.conf, in lower case, that are the agent's; the Include never names them."""

_KEY = re.compile(r"([A-Za-z]+)=(.*)")
_NODES = re.compile(r"\bNodes=(\S+)")
# What may lie beside the agent's slurm.conf; gres.conf and topology.conf are the agent's.
_BESIDE = ("cgroup.conf", "job_container.conf")


def include_text(bundle: Bundle, groups: Mapping[str, Sequence[str]]) -> str:
    """Return the Include: the bundle's slurm.conf without what the agent owns.

    Args:
        bundle: the compiled site.
        groups: the names that the site gives to the nodes of each compute group.
    """
    owners = {name: group for group, names in groups.items() for name in names}
    lines = [line for line in bundle.file("slurm.conf").text.splitlines() if not _is_theirs(line)]
    text = "\n".join(_filled(line, owners) for line in _without_stray_comments(lines))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def beside(bundle: Bundle) -> tuple[File, ...]:
    """Return the other files of the controller's folder that are ours to write, where there are none yet.

    Slurm finds out itself which cgroup hierarchy a node has: images differ.
    """
    found = (file for file in bundle.files if file.path in _BESIDE)
    return tuple(replace(file, text=re.sub(r"(?m)^CgroupPlugin=.*\n", "", file.text)) for file in found)


def slurmdbd_file(bundle: Bundle) -> File:
    """Return slurmdbd.conf, on whatever host the site puts it.

    Raises:
        UsageError: it holds a password, which has no place in a bundle.
    """
    files = [*bundle.files, *(file for files in bundle.elsewhere.values() for file in files)]
    found = next(file for file in files if file.path == "slurmdbd.conf")
    if re.search(r"^\s*StoragePass\s*=", found.text, re.IGNORECASE | re.MULTILINE):
        raise UsageError(
            "slurmdbd.conf would hold a password",
            "keep it in AWS Secrets Manager, not in accounting.parameters",
        )
    return found


def gres_by_group(site: Site, facts: Facts) -> dict[str, str]:
    """Return the Gres= of the nodes of each compute group that has any."""
    found = {group.name: ",".join(map(str, group_gres(group))) for group in compute_groups(site, facts)}
    return {name: gres for name, gres in found.items() if gres}


def account_calls(bundle: Bundle) -> dict[str, Any]:
    """Return what a slurmdbd is told that knows nothing yet, as JSON values.

    Returns:
        `bootstrap`: calls before slurmctld's first start, each an object with `argv` for
        `sacctmgr --immediate` and `stdin`; `additions`: those after it; `expected`: the names that slurmdbd
        knows then: `tiers`, `accounts`, `people` and `coordinators` (pairs of person and account).
    """
    wanted = bundle.accounts
    found = difference(wanted, AccountTree((), (), (), {}, ()))
    first = bootstrap(found)
    return {
        "cluster": wanted.clusters[0],
        "bootstrap": [_plain(call) for call in first],
        "additions": [_plain(call) for call in additions(found)[len(first) :] if call not in first],
        "expected": {
            "tiers": [qos.name for qos in wanted.qos],
            "accounts": [account.name for account in wanted.accounts],
            "people": [[each.user, each.account] for each in wanted.associations],
            "coordinators": [[user, each.name] for each in wanted.accounts for user in each.coordinators],
        },
    }


def _plain(call: Call) -> dict[str, Any]:
    return {"argv": list(call.argv), "stdin": call.stdin}


def _is_theirs(line: str) -> bool:
    match = _KEY.match(line)
    return match is not None and match[1].lower() in AGENT_OWNED


def _without_stray_comments(lines: Sequence[str]) -> Iterator[str]:
    """Drop comments and titles under which nothing is left."""
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if place and line.startswith("#") and (not following.strip() or following.startswith("#")):
            continue
        yield line


def _filled(line: str, owners: Mapping[str, str]) -> str:
    """The host of slurmdbd and the nodes of partitions as what stands for them."""
    if line.startswith("AccountingStorageHost="):
        return "AccountingStorageHost=@controller@"
    found = _NODES.search(line) if line.startswith("PartitionName=") else None
    if found is None:
        return line
    groups = dict.fromkeys(owners[name] for name in expand(found[1]))
    return line.replace(found[0], f"Nodes={','.join(f'@group:{group}@' for group in groups)}", 1)
