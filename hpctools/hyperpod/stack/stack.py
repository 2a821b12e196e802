"""The whole stack of a site, and its small companion in the region of the checkpoints' copies."""

from __future__ import annotations

from hpctools.hyperpod.stack.buckets import buckets, replica
from hpctools.hyperpod.stack.context import context_of
from hpctools.hyperpod.stack.entry import entry
from hpctools.hyperpod.stack.execution import execution_roles
from hpctools.hyperpod.stack.intrinsic import Json, template
from hpctools.hyperpod.stack.network import network
from hpctools.hyperpod.stack.people import directory, identity_center, sessions
from hpctools.hyperpod.stack.security import endpoints, security
from hpctools.hyperpod.stack.storage import database, file_systems
from hpctools.hyperpod.stack.warnings import budget, notifications
from hpctools.site.model import Site

PARTS = (
    network,
    security,
    endpoints,
    file_systems,
    database,
    buckets,
    execution_roles,
    entry,
    notifications,
    budget,
    sessions,
    identity_center,
    directory,
)


def infrastructure(site: Site) -> Json:
    """The CloudFormation template of everything around a site's cluster.

    It depends on the site alone: no account, no region, no secret is in it.

    Raises:
        UsageError: the site has no `aws` section, or its budgets are not in USD.
    """
    context = context_of(site)
    return template(
        f"What is around the cluster {context.cluster}; made by hpctools", [part(context) for part in PARTS]
    )


def copies(site: Site) -> Json | None:
    """The template of the checkpoints' copies, for their region; None when there are none.

    Raises:
        UsageError: the site has no `aws` section.
    """
    context = context_of(site)
    if not context.aws.buckets.replicas_in:
        return None
    about = f"Copies of the checkpoints of the cluster {context.cluster}; made by hpctools"
    return template(about, [replica(context)])
