"""GPUs: whether they can be shared as meant, are kept apart, and are counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpctools.doctor.check import checks, fold
from hpctools.doctor.conf_lines import lines, settings, with_includes
from hpctools.doctor.installation import ConfFile
from hpctools.doctor.model import Finding, Severity
from hpctools.slurm.parse import unfold
from hpctools.slurm.types import Node, Partition

SHARING = ("shard", "mps")


def shared_gpus_have_records(nodes: tuple[Node, ...], files: tuple[ConfFile, ...]) -> Iterator[Finding]:
    """Shards are parts of GPUs, which slurmctld must know of (fatal on 22.05.8 at its next start)."""
    records = [
        pairs
        for file in with_includes(files, "gres.conf")
        for pairs in lines(file.text or "")
    ]  # fmt: skip
    if any(pairs.get("autodetect", "off").lower() not in ("off", "none") for pairs in records):
        return
    gpus = [pairs for pairs in records if pairs.get("name") == "gpu"]
    everywhere = any("nodename" not in pairs for pairs in gpus)
    named = {name for pairs in gpus for name in unfold(pairs.get("nodename", ""))}
    bare = [node.name for node in nodes if _shares(node) and not everywhere and node.name not in named]
    if bare:
        yield Finding(
            fold(bare),
            "it has shards or MPS, and gres.conf has no gpu record for it",
            "slurmctld does not start with this gres.conf, and nobody gets a part of a GPU",
            "add `NodeName=... Name=gpu File=...` lines for these nodes to gres.conf, before the shared ones",
        )


def shared_gpus_are_not_exclusive(
    nodes: tuple[Node, ...], partitions: tuple[Partition, ...]
) -> Iterator[Finding]:
    """OverSubscribe=EXCLUSIVE gives a job the whole node, and with it every shard."""
    sharing = {node.name for node in nodes if _shares(node)}
    for partition in partitions:
        both = sharing & set(partition.nodes)
        if partition.exclusive and both:
            yield Finding(
                f"partition {partition.name}",
                f"OverSubscribe=EXCLUSIVE, and {fold(both)} has GPUs to share",
                "each job gets the whole node, so nothing is ever shared",
                f"OverSubscribe=NO for {partition.name}, or leave these nodes out; then scontrol reconfigure",
            )


def gpus_are_accounted(config: Mapping[str, str], nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Only what AccountingStorageTRES names is kept in slurmdbd."""
    tracked = {word.split(":")[0] for word in config.get("AccountingStorageTRES", "").lower().split(",")}
    there = {name.split(":")[0] for node in nodes for name in node.gres}
    missing = sorted(name for name in there & {"gpu", "shard", "mps"} if f"gres/{name}" not in tracked)
    if missing:
        yield Finding(
            "AccountingStorageTRES",
            f"it lacks {', '.join(f'gres/{name}' for name in missing)}",
            "slurmdbd keeps no use of them: no limits on GPUs hold, and no bill can be made",
            "add them to AccountingStorageTRES, then restart slurmctld",
        )


def jobs_see_their_gpus_only(
    config: Mapping[str, str], nodes: tuple[Node, ...], files: tuple[ConfFile, ...]
) -> Iterator[Finding]:
    """cgroup.conf's Constrain* do nothing without task/cgroup."""
    wanted = settings(files, "cgroup.conf")
    constrained = sorted(key for key, value in wanted.items() if _constrains(key, value))
    if constrained and "task/cgroup" not in config.get("TaskPlugin", ""):
        yield Finding(
            "TaskPlugin",
            f"it is {config.get('TaskPlugin', 'not set')}, and cgroup.conf sets {', '.join(constrained)}",
            "nothing is constrained: jobs use each other's cores, memory and GPUs",
            "TaskPlugin=task/affinity,task/cgroup, then restart slurmctld and all slurmds",
        )
    with_gpus = [node.name for node in nodes if any(name.startswith("gpu") for name in node.gres)]
    cgroups = "cgroup" in config.get("ProctrackType", "")
    if with_gpus and cgroups and not _constrains("constraindevices", wanted.get("constraindevices", "no")):
        yield Finding(
            fold(with_gpus),
            "ConstrainDevices is off, and these nodes have GPUs",
            "a job reaches every GPU of its node, whatever it asked for",
            "ConstrainDevices=yes in cgroup.conf, then restart slurmd on these nodes",
            Severity.WARNING,
        )


def _constrains(key: str, value: str) -> bool:
    return key.startswith("constrain") and value.lower() in ("yes", "true", "1")


def _shares(node: Node) -> bool:
    return any(name.split(":")[0] in SHARING for name in node.gres)


CHECKS = checks(
    (shared_gpus_have_records, "nodes files"),
    (shared_gpus_are_not_exclusive, "nodes partitions"),
    (gpus_are_accounted, "config nodes"),
    (jobs_see_their_gpus_only, "config nodes files"),
)
