"""From a site to a whole Slurm configuration: pure, deterministic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpctools.conf.bundle import Bundle, File
from hpctools.conf.daemons import slurmdbd_conf
from hpctools.conf.fabric import topology_conf
from hpctools.conf.facts import Facts
from hpctools.conf.gres import check_sharing, gres_conf
from hpctools.conf.slurmconf import slurm_conf
from hpctools.conf.surroundings import cgroup_conf, job_container_conf
from hpctools.conf.topology import ComputeGroup, compute_groups
from hpctools.conf.wanted_accounts import account_tree
from hpctools.errors import SiteError
from hpctools.site.model import Site
from hpctools.slurm.versions import OLDEST, Release, parse_release, spell_release

_DEFAULT_RELEASE: Release = (24, 11)


def compile(site: Site, facts: Facts | None = None) -> Bundle:
    """Compile a site.

    Args:
        site: what the site wants.
        facts: what there is; an ordinary cluster when None.

    Returns:
        The files and accounts; the same for the same arguments, always.

    Raises:
        SiteError: the site cannot be had: an unsupported Slurm release, or one that lacks what the site
            wants; no nodes at all.
    """
    facts = facts or Facts()
    release = _release(site, facts)
    groups = compute_groups(site, facts)
    if not groups:
        raise SiteError("no node group has a node that runs jobs", "raise a count in node_groups")
    check_sharing(groups, release)
    files, accounts = tuple(_files(site, facts, groups, release)), account_tree(site)
    daemon = File("slurmdbd.conf", slurmdbd_conf(site, facts), 0o600)
    host = _slurmdbd_host(site, facts)
    if host is None:
        return Bundle((*files, daemon), accounts)
    return Bundle(files, accounts, {host: (daemon,)})


def _slurmdbd_host(site: Site, facts: Facts) -> str | None:
    """The host of a slurmdbd that runs on no controller; facts that say where it listens are of here."""
    host = site.cluster.accounting.host
    here = host in (None, *site.cluster.controllers) or facts.slurmdbd_endpoint is not None
    return None if here else host


def _files(site: Site, facts: Facts, groups: Sequence[ComputeGroup], release: Release) -> Iterator[File]:
    container, topology = site.cluster.job_container, site.cluster.topology
    yield File("slurm.conf", slurm_conf(site, facts, groups, release))
    yield File("gres.conf", gres_conf(groups, facts, release))
    yield File("cgroup.conf", cgroup_conf(site, facts, release))
    if topology is not None:
        yield File("topology.conf", topology_conf(site, topology, groups))
    if container is not None:
        yield File("job_container.conf", job_container_conf(site, container, release))


def _release(site: Site, facts: Facts) -> Release:
    stated = parse_release(site.cluster.slurm) if site.cluster.slurm else _DEFAULT_RELEASE
    release = facts.slurm_version or stated
    if release < OLDEST:
        raise SiteError(
            f"Slurm {spell_release(release)} is too old", f"hpctools needs {spell_release(OLDEST)} or later"
        )
    return release
