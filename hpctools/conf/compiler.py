"""From a site to a whole Slurm configuration: pure, deterministic."""

from __future__ import annotations

from hpctools.conf.accounts import account_tree
from hpctools.conf.bundle import Bundle, File
from hpctools.conf.daemons import cgroup_conf, slurmdbd_conf
from hpctools.conf.facts import Facts
from hpctools.conf.gres import gres_conf
from hpctools.conf.slurmconf import slurm_conf
from hpctools.conf.topology import compute_groups
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
        SiteError: the site cannot be had: an unsupported Slurm release, no nodes at all.
    """
    facts = facts or Facts()
    release = _release(site, facts)
    groups = compute_groups(site, facts)
    if not groups:
        raise SiteError("no node group has a node that runs jobs", "raise a count in node_groups")
    files = (
        File("slurm.conf", slurm_conf(site, facts, groups, release)),
        File("gres.conf", gres_conf(groups, facts)),
        File("cgroup.conf", cgroup_conf(facts, release)),
        File("slurmdbd.conf", slurmdbd_conf(site, facts), 0o600),
    )
    return Bundle(files, account_tree(site))


def _release(site: Site, facts: Facts) -> Release:
    stated = parse_release(site.cluster.slurm) if site.cluster.slurm else _DEFAULT_RELEASE
    release = facts.slurm_version or stated
    if release < OLDEST:
        raise SiteError(
            f"Slurm {spell_release(release)} is too old", f"hpctools needs {spell_release(OLDEST)} or later"
        )
    return release
