"""The small files beside slurm.conf: cgroup.conf and slurmdbd.conf."""

from __future__ import annotations

from hpctools.conf.facts import Facts
from hpctools.conf.text import HEADER, section
from hpctools.site.model import Site
from hpctools.slurm.versions import Release, knows_cgroup_disabled


def cgroup_conf(facts: Facts, release: Release) -> str:
    """Render cgroup.conf."""
    if facts.cgroup == "none":
        plugin = "disabled" if knows_cgroup_disabled(release) else None
        return HEADER + section("No cgroups here", {"CgroupPlugin": plugin})
    return HEADER + section(
        "What jobs are kept to",
        {
            "CgroupPlugin": f"cgroup/{facts.cgroup}",
            "ConstrainCores": facts.constrain_cores,
            "ConstrainRAMSpace": facts.constrain_ram,
            "ConstrainDevices": facts.constrain_devices,
        },
    )


def slurmdbd_conf(site: Site, facts: Facts) -> str:
    """Render slurmdbd.conf; it may hold a password, so only its owner may read it."""
    accounting = site.cluster.accounting
    endpoint = facts.slurmdbd_endpoint
    database = accounting.database
    daemon = {
        "DbdHost": accounting.host or site.cluster.controllers[0],
        "DbdAddr": endpoint.address if endpoint else None,
        "DbdPort": endpoint.port if endpoint else accounting.port,
        "AuthType": "auth/munge",
        "SlurmUser": facts.slurm_user or site.cluster.slurm_user,
        "LogFile": "/var/log/slurm/slurmdbd.log",
        "PidFile": "/run/slurm/slurmdbd.pid",
    }
    storage = {
        "StorageType": "accounting_storage/mysql",
        "StorageHost": database.host,
        "StoragePort": None if database.host == "localhost" else database.port,
        "StorageLoc": database.name,
        "StorageUser": database.user,
        "StoragePass": facts.storage_password,
    }
    return HEADER + section("Daemon", daemon) + section("Database", storage)
