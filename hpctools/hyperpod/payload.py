"""site/settings.json: what the scripts on the nodes are told. One function for each section. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctools.hyperpod.access import access_settings
from hpctools.hyperpod.identity import identity_settings
from hpctools.hyperpod.partitions import closed_partitions
from hpctools.hyperpod.stack import Outputs
from hpctools.site.hyperpod import HyperPod
from hpctools.site.lifecycle import Hook
from hpctools.site.model import Site

VERSION = 1
"""Of the settings; the scripts refuse any other."""

_ALL = ["controller", "login", "compute"]
_AGENT_FOLDER = "/opt/slurm/etc"


@dataclass(frozen=True)
class SlurmPart:
    """What was compiled of the site for Slurm.

    Attributes:
        files: texts by name, for site/slurm: hpctools.conf, slurmdbd.conf, associations.json and what else
            lies beside slurm.conf.
        beside: names of those that are written beside slurm.conf where there are none yet.
        gres: the Gres= of each group's nodes.
    """

    files: Mapping[str, str]
    beside: tuple[str, ...] = ()
    gres: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AgentPart:
    """What was made of the site for its login nodes: their agent, and their sshd.

    Attributes:
        settings: the text of /etc/hpctools/login-agent.yaml.
        unit: the text of its systemd unit.
        sshd: path and text of what sshd of these nodes is told.
    """

    settings: str
    unit: str
    sshd: tuple[str, str]


def settings(
    site: Site, slurm: SlurmPart, outputs: Outputs | None = None, agent: AgentPart | None = None
) -> dict[str, Any]:
    """Return all settings, as JSON values without any secret.

    Args:
        site: what the site wants.
        slurm: what was compiled of it.
        outputs: what the site's stack gave out; None where there is no stack.
        agent: what was made for its login nodes' agent; None where the site has none set up.
    """
    return {
        "version": VERSION,
        "cluster": cluster_settings(site),
        "mounts": mount_settings(site, outputs),
        "users": user_settings(site),
        "accounting": accounting_settings(site, outputs),
        "slurm": slurm_settings(site, slurm),
        "ssh_keys": site.lifecycle.ssh_keys.model_dump(mode="json"),
        "observability": hook_settings(site.lifecycle.observability),
        "containers": hook_settings(site.lifecycle.containers),
        "identity": identity_settings(site),
        "access": access_settings(site),
        "login": {"max_sessions_per_user": site.login.max_sessions_per_user},
        "login_agent": agent_settings(site, agent),
        "login_sshd": {} if agent is None else dict(zip(("path", "text"), agent.sshd, strict=True)),
        "login_balance": balance_settings(site, outputs),
        "log_rotation": site.lifecycle.log_rotation.model_dump(mode="json"),
    }


def cluster_settings(site: Site) -> dict[str, Any]:
    """The cluster's name, and the role of each instance group by its exact name."""
    controller = (site.hyperpod or HyperPod()).controller.group
    return {
        "name": site.cluster.name,
        "groups": {controller: "controller", **{group.name: group.role for group in site.node_groups}},
    }


def mount_settings(site: Site, outputs: Outputs | None) -> list[dict[str, Any]]:
    """File systems on FSx, those of the stack or those that were there before, then those of `lifecycle`."""
    found = [_fsx(*system) for system in _file_systems(site, outputs)]
    taken = {mount["path"] for mount in found}
    stated = [mount.model_dump(mode="json") for mount in site.lifecycle.mounts]
    return [*found, *(mount for mount in stated if mount["path"] not in taken)]


def _file_systems(site: Site, outputs: Outputs | None) -> Iterator[tuple[str, str, str | None, str]]:
    """Kind, host, Lustre's mount name and folder of each."""
    if outputs is not None:
        for made in outputs.file_systems:
            yield made.kind, made.dns_name, made.mount_name, made.mount
        return
    for system in site.aws.file_systems if site.aws is not None else ():
        if system.existing is not None:
            yield system.kind, system.existing.dns_name, system.existing.mount_name, system.mount


def _fsx(kind: str, host: str, mount_name: str | None, path: str) -> dict[str, Any]:
    lustre = kind == "lustre"
    return {
        "source": f"{host}@tcp:/{mount_name}" if lustre else f"{host}:/fsx",
        "path": path,
        "kind": "lustre" if lustre else "nfs",
        "options": [],
        "roles": _ALL,
        "required": True,
    }


def user_settings(site: Site) -> dict[str, Any]:
    """People whom the nodes themselves know."""
    return {"people": dict(site.lifecycle.users), "homes": site.lifecycle.home_folder}


def accounting_settings(site: Site, outputs: Outputs | None) -> dict[str, Any]:
    """The database behind slurmdbd; without an endpoint it is on the controller."""
    usual = site.cluster.accounting.database
    stated = site.hyperpod.accounting_database if site.hyperpod is not None else None
    found: dict[str, Any] = {
        "slurmdbd_port": site.cluster.accounting.port,
        "name": usual.name,
        "user": usual.user,
    }
    if stated is not None:
        more = {"endpoint": stated.endpoint, "port": stated.port, "secret": stated.secret}
        return {**found, **more, "name": stated.name, "user": stated.user}
    if outputs is not None and outputs.database is not None:
        made = outputs.database
        return {**found, "endpoint": made.endpoint, "port": made.port, "secret": made.secret_arn}
    return found


def slurm_settings(site: Site, slurm: SlurmPart) -> dict[str, Any]:
    """Where Slurm is, and what is ours to write there."""
    folder = site.cluster.configuration.folder
    # HyperPod's images have it elsewhere than Debian's packages, which the default speaks of.
    moved = site.cluster.provider == "hyperpod" and folder == "/etc/slurm"
    return {
        "folder": _AGENT_FOLDER if moved else folder,
        "user": site.cluster.slurm_user,
        "gres": dict(slurm.gres),
        "files": list(slurm.beside),
        "closed_partitions": list(closed_partitions(site)),
    }


def hook_settings(hook: Hook | None) -> dict[str, Any]:
    """A program of the site's own; its limit in seconds."""
    if hook is None:
        return {}
    return {
        "command": list(hook.command),
        "check": list(hook.check),
        "roles": list(hook.roles),
        "limit": hook.limit,
        "required": hook.required,
    }


def agent_settings(site: Site, agent: AgentPart | None) -> dict[str, Any]:
    """The agent of login nodes: its files, the service, and where its token is.

    A node without it is of no use only where nobody may get in uncounted.
    """
    stated = site.login.agent
    if stated is None or agent is None:
        return {}
    return {
        "settings": agent.settings,
        "unit": agent.unit,
        "service": stated.service,
        "token": stated.token.model_dump(exclude_none=True),
        "required": site.login.when_unreachable == "refuse",
    }


def balance_settings(site: Site, outputs: Outputs | None) -> dict[str, Any]:
    """The target group that login nodes register with: the site's, else that of its stack."""
    stated = site.lifecycle.login_balance
    if stated is not None:
        return {"target_group": stated.target_group, "port": stated.port}
    if outputs is None or outputs.login_targets is None:
        return {}
    return {"target_group": outputs.login_targets, "port": 22}
