"""The tags of a cluster and of its stack: whose it is and how it is paid for, so that a bill can be divided.

CreateCluster takes tags of the cluster as a whole only: an instance group can carry none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpctools.site.model import Site

DEPARTMENT_TAG = "hpctools:department"
CAPACITY_TAG = "hpctools:capacity"
_BETWEEN = "+"  # AWS takes no comma in a tag; no name of ours has a plus
_LONGEST = 256


def cluster_tags(site: Site) -> Mapping[str, str]:
    """Return the tags of a site's cluster: ours first, then those of the site.

    Those of the site win, but for the cluster's name: bills are divided by it.
    """
    return _named(site, dict(stack_tags(site)) | (dict(site.hyperpod.tags) if site.hyperpod else {}))


def stack_tags(site: Site) -> Mapping[str, str]:
    """Return the tags of a site's stack, and of all its resources that can carry any.

    They serve the whole cluster, so they name all its departments and kinds of capacity.
    """
    capacities = sorted({group.capacity for group in site.node_groups if group.capacity is not None})
    tags = {
        DEPARTMENT_TAG: _joined([department.name for department in site.departments], "departments")
        or "none",
        CAPACITY_TAG: _joined(capacities, "kinds") if capacities else "own",
    }
    return _named(site, tags | (dict(site.aws.tags) if site.aws is not None else {}))


def _named(site: Site, tags: Mapping[str, str]) -> Mapping[str, str]:
    """The cluster's name first, which nothing else may replace."""
    name = {site.billing.cluster_tag: site.cluster.name}
    return name | {key: value for key, value in tags.items() if key not in name}


def _joined(names: Iterable[str], what: str) -> str:
    found = list(names)
    text = _BETWEEN.join(found)
    return text if len(text) <= _LONGEST else f"{len(found)} {what}"


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Spell tags as requests do."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]
