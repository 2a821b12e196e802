"""slurm.conf: a function for each of Slurm's concerns, and the whole file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpctools.conf.facts import Facts
from hpctools.conf.gres import gres_names
from hpctools.conf.nodes import node_lines
from hpctools.conf.partitions import partition_lines
from hpctools.conf.text import HEADER, section
from hpctools.conf.topology import ComputeGroup
from hpctools.site.model import Site
from hpctools.site.scalars import spell_duration
from hpctools.slurm.versions import Release, knows_preempt_parameters

_Settings = Mapping[str, object]


# Who ran shortest loses least; a second look avoids asking more jobs to yield than needed.
_PREEMPT_WORDS = ("reorder_count=2", "youngest_first")


def slurm_conf(site: Site, facts: Facts, groups: Sequence[ComputeGroup], release: Release) -> str:
    """Render slurm.conf.

    Args:
        site: what the site wants.
        facts: what there is.
        groups: the site's compute groups, seen through the facts.
        release: the Slurm release that will read it.
    """
    sections = {
        "Cluster": _cluster(site, facts),
        "Daemons": _daemons(facts),
        "Processes of jobs": _processes(facts),
        "Accounting": _accounting(site, facts, gres_names(groups)),
        "Scheduling": _scheduling(site, release),
        "Priority": _priority(site),
        "Preemption": _preemption(release),
        "Resources": _resources(groups),
    }
    merged = _with_extras(sections, facts.extra_parameters)
    parts = [HEADER] + [f"SlurmctldHost={host}\n" for host in _controllers(site, facts)]
    parts += [section(title, settings) for title, settings in merged.items() if settings]
    return "".join(parts) + node_lines(groups, facts) + partition_lines(site, groups)


def _with_extras(sections: Mapping[str, _Settings], extras: Mapping[str, str]) -> dict[str, _Settings]:
    """Give our keys the extra values where they meet, and add the others at the end."""
    ours = {key for settings in sections.values() for key in settings}
    merged: dict[str, _Settings] = {
        title: {key: extras.get(key, value) or None for key, value in settings.items()}
        for title, settings in sections.items()
    }
    merged["Added"] = {key: value for key, value in extras.items() if key not in ours}
    return merged


def _controllers(site: Site, facts: Facts) -> list[str]:
    names = site.cluster.controllers
    return [
        f"{name}({facts.controller_endpoints[name].address})" if name in facts.controller_endpoints else name
        for name in names
    ]


def _cluster(site: Site, facts: Facts) -> _Settings:
    endpoint = facts.controller_endpoints.get(site.cluster.controllers[0])
    return {
        "ClusterName": site.cluster.name,
        "SlurmctldPort": endpoint.port if endpoint else facts.slurmctld_port,
        "SlurmdPort": facts.slurmd_port,
        "AuthType": "auth/munge",
        "SlurmUser": facts.slurm_user or site.cluster.slurm_user,
        # Nodes fetch their configuration from slurmctld (slurmd --conf-server).
        "SlurmctldParameters": "enable_configless",
    }


def _daemons(facts: Facts) -> _Settings:
    return {
        "StateSaveLocation": "/var/spool/slurmctld",
        "SlurmdSpoolDir": "/var/spool/slurmd/%n",
        "SlurmctldPidFile": "/run/slurm/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd-%n.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd-%n.log",
        "SlurmctldTimeout": 120,
        # A silent node is given up after this; elastic runs notice earlier by themselves.
        "SlurmdTimeout": 120,
        "MessageTimeout": 30,
        "UnkillableStepTimeout": 120,
        # A node that was down for any reason serves again as soon as it registers with a valid configuration.
        "ReturnToService": 2,
    }


def _processes(facts: Facts) -> _Settings:
    cgroups = facts.cgroup != "none"
    return {
        "ProctrackType": "proctrack/cgroup" if cgroups else "proctrack/linuxproc",
        "TaskPlugin": _task_plugins(facts),
        # Makes a cgroup for the whole job at its start, which sessions are adopted into.
        "PrologFlags": "Contain" if cgroups else None,
        "JobAcctGatherType": "jobacct_gather/cgroup" if cgroups else "jobacct_gather/linux",
        "JobAcctGatherFrequency": 30,
        "KillWait": 30,
        "MpiDefault": "none",
        "LaunchParameters": "use_interactive_step",
        # Locked memory is limited on login nodes, and RDMA needs it unlimited on the nodes.
        "PropagateResourceLimitsExcept": "MEMLOCK",
    }


def _task_plugins(facts: Facts) -> str:
    if facts.cgroup == "none":
        return "task/affinity" if facts.constrain_cores else "task/none"
    return "task/affinity,task/cgroup" if facts.constrain_cores else "task/cgroup"


def _accounting(site: Site, facts: Facts, gres: Sequence[str]) -> _Settings:
    stated = site.cluster.accounting
    endpoint = facts.slurmdbd_endpoint
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": endpoint.address if endpoint else stated.host or site.cluster.controllers[0],
        "AccountingStoragePort": endpoint.port if endpoint else stated.port,
        "AccountingStorageEnforce": "associations,limits,qos,safe",
        "AccountingStorageTRES": ",".join(f"gres/{name}" for name in gres) or None,
        # Elastic runs carry their id in the comment; without this flag slurmdbd drops it.
        "AccountingStoreFlags": "job_comment",
    }


def _scheduling(site: Site, release: Release) -> _Settings:
    before = () if knows_preempt_parameters(release) else _PREEMPT_WORDS
    return {
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": ",".join(
            [
                "batch_sched_delay=1",
                "bf_continue",
                "bf_interval=10",
                "bf_max_job_test=1000",
                f"bf_window={_window(site)}",
                "sched_interval=10",
                *(f"preempt_{word}" for word in before),
            ]
        ),
        "EnforcePartLimits": "ALL",
        "MinJobAge": 300,
    }


def _window(site: Site) -> int:
    """How far backfill looks ahead, minutes: as long as the longest job may run, at least a day."""
    own = (department.partition for department in site.departments)
    longest = [terms.max_time for terms in (*own, *site.partitions) if terms is not None]
    week, day = 7 * 24 * 60, 24 * 60
    return max(day, *(week if seconds is None else -(-seconds // 60) for seconds in longest))


def _priority(site: Site) -> _Settings:
    stated = site.cluster.priority
    return {
        "PriorityType": "priority/multifactor",
        "PriorityDecayHalfLife": spell_duration(stated.half_life),
        "PriorityMaxAge": spell_duration(stated.max_age),
        "PriorityWeightQOS": stated.weights.tier,
        "PriorityWeightFairshare": stated.weights.fair_share,
        "PriorityWeightAge": stated.weights.age,
        "PriorityWeightJobSize": stated.weights.job_size,
        "PriorityFlags": "MAX_TRES",
    }


def _preemption(release: Release) -> _Settings:
    return {
        "PreemptType": "preempt/qos",
        "PreemptMode": "CANCEL",
        "PreemptParameters": ",".join(_PREEMPT_WORDS) if knows_preempt_parameters(release) else None,
    }


def _resources(groups: Sequence[ComputeGroup]) -> _Settings:
    return {
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "GresTypes": ",".join(gres_names(groups)) or None,
    }
