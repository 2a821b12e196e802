"""slurm.conf: a function for each of Slurm's concerns, and the whole file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpctools.conf.fabric import topology_settings
from hpctools.conf.facts import Facts
from hpctools.conf.gres import gres_names, tracked_gres
from hpctools.conf.nodes import node_lines
from hpctools.conf.partitions import partition_lines
from hpctools.conf.power import power_settings
from hpctools.conf.surroundings import container_settings, script_settings
from hpctools.conf.text import HEADER, Said, changed, comment, section
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
        "Daemons": _daemons(site),
        "Processes of jobs": _processes(site, facts),
        "Around jobs": {**script_settings(site), **container_settings(site, release)},
        "Accounting": _accounting(site, facts, tracked_gres(groups)),
        "Scheduling": _scheduling(site, release),
        "Priority": _priority(site),
        "Preemption": _preemption(release),
        "Resources": _resources(groups),
        "Topology": topology_settings(site, release),
        "Power saving": power_settings(site, groups, release),
    }
    merged = _with_extras(sections, _extras(site, facts))
    parts = [HEADER, *_controllers(site, facts)]
    parts += [section(title, settings, site.source) for title, settings in merged.items()]
    return "".join(parts) + node_lines(groups, facts, site.source) + partition_lines(site, groups)


def _extras(site: Site, facts: Facts) -> dict[str, object]:
    """What the site and the facts say in Slurm's words; the facts win."""
    stated = {
        key: Said(value, ("cluster", "parameters", key)) for key, value in site.cluster.parameters.items()
    }
    names = {key.lower() for key in facts.extra_parameters}
    return {
        **{key: value for key, value in stated.items() if key.lower() not in names},
        **facts.extra_parameters,
    }


def _with_extras(sections: Mapping[str, _Settings], extras: _Settings) -> dict[str, _Settings]:
    """Give our keys the extra values where they meet, and add the others at the end; no empty sections."""
    merged: dict[str, _Settings] = {}
    ours: set[str] = set()
    for title, settings in sections.items():
        keys = {key.lower() for key in settings}
        merged[title] = changed(settings, {key: extras[key] for key in extras if key.lower() in keys})
        ours |= keys
    merged["Added"] = changed({}, {key: extras[key] for key in extras if key.lower() not in ours})
    return {title: settings for title, settings in merged.items() if any(map(_is_said, settings.values()))}


def _is_said(value: object) -> bool:
    return (value.value if isinstance(value, Said) else value) is not None


def _controllers(site: Site, facts: Facts) -> Iterator[str]:
    for index, name in enumerate(site.cluster.controllers):
        endpoint = facts.controller_endpoints.get(name)
        yield comment(site.source, ("cluster", "controllers", index))
        yield f"SlurmctldHost={name}({endpoint.address})\n" if endpoint else f"SlurmctldHost={name}\n"


def _cluster(site: Site, facts: Facts) -> _Settings:
    endpoint = facts.controller_endpoints.get(site.cluster.controllers[0])
    return {
        "ClusterName": Said(site.cluster.name, ("cluster", "name")),
        "SlurmctldPort": endpoint.port if endpoint else facts.slurmctld_port,
        "SlurmdPort": facts.slurmd_port,
        "AuthType": "auth/munge",
        "SlurmUser": facts.slurm_user or Said(site.cluster.slurm_user, ("cluster", "slurm_user")),
        # Nodes fetch their configuration from slurmctld (slurmd --conf-server).
        "SlurmctldParameters": Said(
            "enable_configless" if site.cluster.configuration.distribution == "configless" else None,
            ("cluster", "configuration", "distribution"),
        ),
    }


def _daemons(site: Site) -> _Settings:
    return {
        "StateSaveLocation": Said(
            site.cluster.configuration.state_folder or "/var/spool/slurmctld",
            ("cluster", "configuration", "state_folder"),
        ),
        "SlurmdSpoolDir": "/var/spool/slurmd/%n",
        "SlurmctldPidFile": "/run/slurm/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd-%n.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd-%n.log",
        "SlurmctldTimeout": 120,
        # A silent node is given up after this; elastic runs notice earlier by themselves.
        "SlurmdTimeout": 120,
        "MessageTimeout": 30,
        # 24.11 and later want at least five times MessageTimeout, or nodes go down with KillTaskFailed.
        "UnkillableStepTimeout": 150,
        # A node that was down for any reason serves again as soon as it registers with a valid configuration.
        "ReturnToService": 2,
    }


def _processes(site: Site, facts: Facts) -> _Settings:
    cgroups = facts.cgroup != "none"
    return {
        "ProctrackType": "proctrack/cgroup" if cgroups else "proctrack/linuxproc",
        "TaskPlugin": _task_plugins(facts, cores=facts.constrain_cores and site.cluster.containment.cores),
        # Makes a cgroup for the whole job at its start, which sessions are adopted into; private folders need
        # it too.
        "PrologFlags": "Contain" if cgroups or site.cluster.job_container else None,
        "JobAcctGatherType": "jobacct_gather/cgroup" if cgroups else "jobacct_gather/linux",
        "JobAcctGatherFrequency": 30,
        "KillWait": 30,
        "MpiDefault": "none",
        "LaunchParameters": "use_interactive_step",
        # Locked memory is limited on login nodes, and RDMA needs it unlimited on the nodes.
        "PropagateResourceLimitsExcept": "MEMLOCK",
    }


def _task_plugins(facts: Facts, *, cores: bool) -> str:
    if facts.cgroup == "none":
        return "task/affinity" if cores else "task/none"
    return "task/affinity,task/cgroup" if cores else "task/cgroup"


def _accounting(site: Site, facts: Facts, gres: Sequence[str]) -> _Settings:
    stated, place = site.cluster.accounting, ("cluster", "accounting")
    endpoint = facts.slurmdbd_endpoint
    host = stated.host or site.cluster.controllers[0]
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": endpoint.address if endpoint else Said(host, (*place, "host")),
        "AccountingStoragePort": endpoint.port if endpoint else Said(stated.port, (*place, "port")),
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
    """How far backfill looks ahead, minutes: as long as the longest job may run, from a day to a month.

    slurm.conf(5): 30 days at most; slurmctld ignores a longer one, and looks ahead for a day only.
    """
    own = (department.partition for department in site.departments)
    longest = [terms.max_time for terms in (*own, *site.partitions) if terms is not None]
    week, day = 7 * 24 * 60, 24 * 60
    wanted = max([day, *(week if seconds is None else -(-seconds // 60) for seconds in longest)])
    return min(wanted, 30 * day)


def _priority(site: Site) -> _Settings:
    stated, place = site.cluster.priority, ("cluster", "priority")
    return {
        "PriorityType": "priority/multifactor",
        "PriorityDecayHalfLife": Said(spell_duration(stated.half_life), (*place, "half_life")),
        "PriorityMaxAge": Said(spell_duration(stated.max_age), (*place, "max_age")),
        "PriorityWeightQOS": Said(stated.weights.tier, (*place, "weights", "tier")),
        "PriorityWeightFairshare": Said(stated.weights.fair_share, (*place, "weights", "fair_share")),
        "PriorityWeightAge": Said(stated.weights.age, (*place, "weights", "age")),
        "PriorityWeightJobSize": Said(stated.weights.job_size, (*place, "weights", "job_size")),
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
