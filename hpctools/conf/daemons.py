"""slurmdbd.conf."""

from __future__ import annotations

from hpctools.conf.facts import Facts
from hpctools.conf.text import HEADER, Said, changed, section
from hpctools.site.model import Site


def slurmdbd_conf(site: Site, facts: Facts) -> str:
    """Render slurmdbd.conf; it may hold a password, so only its owner may read it."""
    accounting, place = site.cluster.accounting, ("cluster", "accounting")
    endpoint = facts.slurmdbd_endpoint
    database = accounting.database
    daemon: dict[str, object] = {
        "DbdHost": Said(accounting.host or site.cluster.controllers[0], (*place, "host")),
        "DbdAddr": endpoint.address if endpoint else None,
        "DbdPort": endpoint.port if endpoint else Said(accounting.port, (*place, "port")),
        "AuthType": "auth/munge",
        "SlurmUser": facts.slurm_user or Said(site.cluster.slurm_user, ("cluster", "slurm_user")),
        "LogFile": "/var/log/slurm/slurmdbd.log",
        "PidFile": "/run/slurm/slurmdbd.pid",
    }
    storage: dict[str, object] = {
        "StorageType": "accounting_storage/mysql",
        "StorageHost": Said(database.host, (*place, "database", "host")),
        "StoragePort": None
        if database.host == "localhost"
        else Said(database.port, (*place, "database", "port")),
        "StorageLoc": Said(database.name, (*place, "database", "name")),
        "StorageUser": Said(database.user, (*place, "database", "user")),
        "StoragePass": facts.storage_password,
    }
    more = {key: Said(value, (*place, "parameters", key)) for key, value in accounting.parameters.items()}
    stored = {key.lower() for key in storage}
    daemon = changed(daemon, {key: value for key, value in more.items() if key.lower() not in stored})
    storage = changed(storage, {key: value for key, value in more.items() if key.lower() in stored})
    return HEADER + section("Daemon", daemon, site.source) + section("Database", storage, site.source)
