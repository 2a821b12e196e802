"""What works but may surprise: findings of severity `warning`, which keep nothing from being used.

A warning is a function from a valid site to findings made with `site.source.warning(location, found,
expected)`; add it to `WARNINGS`. What other modules warn of stands in their own files and is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpctools.site.findings import Finding
from hpctools.site.gpu_warnings import GPU_WARNINGS
from hpctools.site.model import Site

Warn = Callable[[Site], Iterator[Finding]]


def warnings(site: Site) -> tuple[Finding, ...]:
    """Return everything that people should see, in the order of the file."""
    return tuple(sorted({finding for warn in WARNINGS for finding in warn(site)}))


def state_is_shared(site: Site) -> Iterator[Finding]:
    """A backup controller can take over only what it can read."""
    controllers = site.cluster.controllers
    if len(controllers) > 1 and site.cluster.configuration.state_folder is None:
        yield site.source.warning(
            ("cluster", "controllers"),
            f"{len(controllers)} controllers and no cluster.configuration.state_folder",
            "a folder that all of them share, or a backup takes over without any job",
        )


def departments_have_partitions(site: Site) -> Iterator[Finding]:
    """A department without any partition runs no jobs."""
    open_to_all = any(shared.departments is None for shared in site.partitions)
    reached = {name for shared in site.partitions for name in shared.departments or ()}
    for index, department in enumerate(site.departments):
        if department.partition is None and not open_to_all and department.name not in reached:
            yield site.source.warning(
                ("departments", index),
                f"no partition that {department.name!r} may use",
                "a partition of its own, or its name in the departments of a shared one",
            )


def default_serves_everybody(site: Site) -> Iterator[Finding]:
    """Who forgets to name a partition gets the default one, and is refused where it is not theirs."""
    for index, department in enumerate(site.departments):
        if department.partition and department.partition.default and len(site.departments) > 1:
            yield site.source.warning(
                ("departments", index, "partition", "default"),
                f"the partition of {department.name!r} as everybody's default",
                "a shared partition, since jobs of other departments that name none are refused here",
            )
    for index, shared in enumerate(site.partitions):
        missing = {department.name for department in site.departments} - set(shared.departments or ())
        if shared.default and shared.departments is not None and missing:
            yield site.source.warning(
                ("partitions", index, "default"),
                f"a default partition without {', '.join(sorted(missing))}",
                "all departments, since jobs that name no partition come here",
            )


def default_tier_is_let_in(site: Site) -> Iterator[Finding]:
    """A job that names no tier is refused where the default tier may not run."""
    for index, shared in enumerate(site.partitions):
        if shared.tiers is not None and site.default_tier not in shared.tiers:
            yield site.source.warning(
                ("partitions", index, "tiers"),
                f"tiers without the default {site.default_tier!r}",
                "it among them, or people have to name a tier for every job here",
            )


def memory_is_kept_to(site: Site) -> Iterator[Finding]:
    """Without memory limits one job can take the memory of all others on its node."""
    if not site.cluster.containment.memory:
        yield site.source.warning(
            ("cluster", "containment", "memory"), "jobs that may take each other's memory", "true"
        )


def one_fabric(site: Site) -> Iterator[Finding]:
    """Jobs do not span switches that nothing connects (topology.conf(5))."""
    topology = site.cluster.topology
    if topology is None or topology.kind != "tree":
        return
    below = {name for switch in topology.switches for name in switch.switches}
    tops = [switch.name for switch in topology.switches if switch.name not in below]
    if len(tops) > 1:
        yield site.source.warning(
            ("cluster", "topology", "switches"),
            f"{len(tops)} switches with nothing above them ({', '.join(tops[:3])})",
            "one at the top, unless no job may use nodes of several of them",
        )


def groups_are_read(site: Site) -> Iterator[Finding]:
    """People of groups that nobody has read are not known, and nobody is taken away meanwhile."""
    unread = site.unread_accounts  # once: it looks at all accounts
    for account in site.accounts():
        if account.name in unread and site.identity is not None:
            yield site.source.warning(
                (*account.location, "members_from"),
                f"people of {account.name!r} that are not known yet",
                f"{site.identity.members_file} beside the site file: `hpctools identity sync` writes it",
            )


def locked_accounts_stay_out(site: Site) -> Iterator[Finding]:
    """Active Directory refuses the password of a locked account; only a filter looks when a key comes."""
    identity = site.identity
    if identity is not None and identity.directory == "ad" and identity.login_filter is None:
        yield site.source.warning(
            ("identity", "login_groups") if identity.login_groups else ("identity",),
            "an Active Directory whose locked accounts get in with an SSH key",
            "login_filter instead of login_groups",
        )


def somebody_gets_in(site: Site) -> Iterator[Finding]:
    """Many a sshd refuses root's logins (PermitRootLogin), and compute nodes everybody without a job."""
    people = site.access.administrators
    if not people.users and not people.groups:
        yield site.source.warning(
            ("access", "administrators"),
            "no administrators but root",
            "a user or a group, or nobody gets into compute nodes where sshd refuses root",
        )


def people_have_somewhere_to_log_in(site: Site) -> Iterator[Finding]:
    """HyperPod's controllers let administrators in alone, and workers those who have a job there."""
    if site.cluster.provider == "hyperpod" and not any(group.role == "login" for group in site.node_groups):
        yield site.source.warning(
            ("node_groups",),
            "no node group of role login",
            "one: on controllers only administrators get in",
        )


def one_group_of_targets(site: Site) -> Iterator[Finding]:
    """Login nodes register with one target group, so that the stack's own stays empty beside another one."""
    entry = site.aws.login if site.aws else None
    if site.lifecycle.login_balance and entry and entry.load_balancer and not entry.scaling:
        yield site.source.warning(
            ("lifecycle", "login_balance"),
            "another target group beside aws.login.load_balancer",
            "one of them: login nodes register with this one, and nobody gets through the stack's balancer",
        )


WARNINGS: tuple[Warn, ...] = (
    state_is_shared,
    departments_have_partitions,
    default_serves_everybody,
    default_tier_is_let_in,
    memory_is_kept_to,
    one_fabric,
    groups_are_read,
    locked_accounts_stay_out,
    somebody_gets_in,
    one_group_of_targets,
    people_have_somewhere_to_log_in,
    *GPU_WARNINGS,
)
