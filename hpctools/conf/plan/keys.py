"""Which kind of value each key has: of slurm.conf's settings, of node lines, of partition lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpctools.conf.plan import values

Canonical = Callable[[str], str]

_minutes = values.seconds(60)
_seconds = values.seconds(1)

_SETTINGS: Mapping[str, Canonical] = {
    "accountingstorageenforce": values.enforcement,
    "accountingstoragetres": values.accounted,
    "interactivestepoptions": values.word,
    "licenses": values.exact,
    "preemptexempttime": _minutes,
    "prioritycalcperiod": _minutes,
    "prioritydecayhalflife": _minutes,
    "prioritymaxage": _minutes,
    "priorityweighttres": values.weights,
    "prologflags": values.prolog_flags,
    "slurmctlddebug": values.level,
    "slurmctldhost": values.controllers,
    "slurmctldsyslogdebug": values.level,
    "slurmddebug": values.level,
    "slurmdsyslogdebug": values.level,
    "slurmduser": values.account,
    "slurmuser": values.account,
    "suspendexcnodes": values.hosts,
    "suspendtime": _seconds,
    "topologyplugin": values.topology,
}


def setting(key: str, value: str) -> str:
    """The canonical text of a setting of slurm.conf; `key` in lower case."""
    return _SETTINGS.get(key, values.plain)(value)


# Keys of node lines: canonical text, and what a missing one stands for.
_NODE: Mapping[str, tuple[Canonical, str]] = {
    "boards": (values.plain, "1"),
    "corespeccount": (values.plain, "0"),
    "corespersocket": (values.plain, "1"),
    "cpus": (values.plain, "1"),
    "features": (values.exact, ""),
    "gres": (values.gres, ""),
    "memspeclimit": (values.plain, "0"),
    "realmemory": (values.plain, "1"),
    "sockets": (values.plain, "1"),
    "state": (values.plain, ""),
    "threadspercore": (values.plain, "1"),
    "tmpdisk": (values.plain, "0"),
    "weight": (values.plain, "1"),
}
# As people know them.
NODE_WORDS = {
    "boards": "Boards",
    "corespeccount": "CoreSpecCount",
    "corespersocket": "CoresPerSocket",
    "cpus": "CPUs",
    "features": "Feature",
    "gres": "Gres",
    "memspeclimit": "MemSpecLimit",
    "nodeaddr": "NodeAddr",
    "nodehostname": "NodeHostname",
    "port": "Port",
    "realmemory": "RealMemory",
    "sockets": "Sockets",
    "state": "State",
    "threadspercore": "ThreadsPerCore",
    "tmpdisk": "TmpDisk",
    "weight": "Weight",
}


def node(key: str, value: str | None) -> str:
    """The canonical text of a key of a node line; of what a missing one stands for when None or empty."""
    canonical, default = _NODE.get(key, (values.word, ""))
    return canonical(value) if value and values.word(value) else canonical(default)


def node_is_shown(key: str) -> bool:
    """Whether `scontrol show node` tells this key of a node line."""
    return key in _NODE


_PARTITION: Mapping[str, tuple[Canonical, str]] = {
    "allocnodes": (values.hosts, "ALL"),
    "allowaccounts": (values.everyone, "ALL"),
    "allowgroups": (values.everyone, "ALL"),
    "allowqos": (values.everyone, "ALL"),
    "alternate": (values.names, ""),
    "default": (values.plain, "NO"),
    "defaulttime": (values.minutes, "NONE"),
    "defcpupergpu": (values.plain, ""),
    "defmempercpu": (values.plain, ""),
    "defmempergpu": (values.plain, ""),
    "defmempernode": (values.plain, "UNLIMITED"),
    "denyaccounts": (values.names, ""),
    "denyqos": (values.names, ""),
    "disablerootjobs": (values.plain, "NO"),
    "exclusivetopo": (values.plain, "NO"),
    "exclusiveuser": (values.plain, "NO"),
    "gracetime": (values.plain, "0"),
    "hidden": (values.plain, "NO"),
    "lln": (values.plain, "NO"),
    "maxcpuspernode": (values.plain, "UNLIMITED"),
    "maxcpuspersocket": (values.plain, "UNLIMITED"),
    "maxmempercpu": (values.plain, ""),
    "maxmempernode": (values.plain, "UNLIMITED"),
    "maxnodes": (values.plain, "UNLIMITED"),
    "maxtime": (values.minutes, "UNLIMITED"),
    "minnodes": (values.plain, "0"),
    "nodes": (values.hosts, ""),
    "oversubscribe": (values.shared, "NO"),
    "overtimelimit": (values.plain, "NONE"),
    "powerdownonidle": (values.plain, "NO"),
    "preemptmode": (values.names, ""),
    "priorityjobfactor": (values.plain, "1"),
    "prioritytier": (values.plain, "1"),
    "qos": (values.plain, ""),
    "reqresv": (values.plain, "NO"),
    "rootonly": (values.plain, "NO"),
    "selecttypeparameters": (values.plain, "NONE"),
    "state": (values.plain, "UP"),
    "tresbillingweights": (values.weights, ""),
}
PARTITION_WORDS = {
    "allocnodes": "AllocNodes",
    "allowaccounts": "AllowAccounts",
    "allowgroups": "AllowGroups",
    "allowqos": "AllowQos",
    "default": "Default",
    "defaulttime": "DefaultTime",
    "defcpupergpu": "DefCpuPerGPU",
    "defmempercpu": "DefMemPerCPU",
    "defmempergpu": "DefMemPerGPU",
    "defmempernode": "DefMemPerNode",
    "denyaccounts": "DenyAccounts",
    "denyqos": "DenyQos",
    "disablerootjobs": "DisableRootJobs",
    "exclusiveuser": "ExclusiveUser",
    "exclusivetopo": "ExclusiveTopo",
    "gracetime": "GraceTime",
    "hidden": "Hidden",
    "lln": "LLN",
    "maxcpuspernode": "MaxCPUsPerNode",
    "maxcpuspersocket": "MaxCPUsPerSocket",
    "maxmempercpu": "MaxMemPerCPU",
    "maxmempernode": "MaxMemPerNode",
    "maxnodes": "MaxNodes",
    "maxtime": "MaxTime",
    "minnodes": "MinNodes",
    "nodes": "Nodes",
    "oversubscribe": "OverSubscribe",
    "overtimelimit": "OverTimeLimit",
    "powerdownonidle": "PowerDownOnIdle",
    "preemptmode": "PreemptMode",
    "priorityjobfactor": "PriorityJobFactor",
    "prioritytier": "PriorityTier",
    "qos": "QOS",
    "reqresv": "ReqResv",
    "rootonly": "RootOnly",
    "selecttypeparameters": "SelectTypeParameters",
    "state": "State",
    "tresbillingweights": "TRESBillingWeights",
}


def partition(key: str, value: str | None, default: str | None = None) -> str:
    """The canonical text of a key of a partition line.

    Args:
        value: as it is spelled; None when it is missing.
        default: what a missing one stands for, where it is not Slurm's own.
    """
    canonical, usual = _PARTITION.get(key, (values.word, ""))
    if value is None or value.strip().lower() in {"", "(null)", "n/a"}:
        value = usual if default is None else default
    return canonical(value)


PARTITION_KEYS = tuple(_PARTITION)

__all__ = ["NODE_WORDS", "PARTITION_KEYS", "PARTITION_WORDS", "node", "node_is_shown", "partition", "setting"]
