"""What every part of the stack asks of the site: names, tags, where it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctools.errors import UsageError
from hpctools.hyperpod.stack.intrinsic import Json, sub
from hpctools.hyperpod.tags import stack_tags
from hpctools.site.aws import Aws
from hpctools.site.model import Site

_SHORT = 20  # characters of the cluster's name in a bucket's; with account and region at most 63
_DIGEST = 6


@dataclass(frozen=True)
class Context:
    """A site with an `aws` section."""

    site: Site
    aws: Aws
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self.site.cluster.name

    @property
    def short(self) -> str:
        """The cluster's name for buckets and balancers: at most 20 characters, no `_`."""
        return short_name(self.cluster)

    def tag_list(self, **more: str) -> list[Json]:
        """The tags of a resource, as most types take them."""
        return [{"Key": key, "Value": value} for key, value in sorted((dict(self.tags) | more).items())]

    def named(self, name: str) -> list[Json]:
        """The tags with one that consoles show."""
        return self.tag_list(Name=f"{self.cluster}-{name}")


def context_of(site: Site) -> Context:
    """The context of a site.

    Raises:
        UsageError: the site has no `aws` section.
    """
    if site.aws is None:
        raise UsageError(
            "the site has no aws section, so there is no stack to make",
            "add one (docs/infrastructure.md); `aws: {}` takes every default",
        )
    return Context(site, site.aws, stack_tags(site))


def stack_name(site: Site) -> str:
    """The stack's name."""
    stated = site.aws.stack if site.aws else None
    return stated or f"hpctools-{site.cluster.name.replace('_', '-')}"


def short_name(cluster: str) -> str:
    """A cluster's name in at most 20 characters that a bucket may have; different names stay different."""
    plain = cluster.replace("_", "-").strip("-")
    if plain == cluster and len(cluster) <= _SHORT:
        return cluster
    digest = hashlib.sha256(cluster.encode()).hexdigest()[:_DIGEST]
    return f"{plain[: _SHORT - _DIGEST - 1].rstrip('-')}-{digest}"


def bucket_name(stated: str | None, pattern: str, context: Context, region: str = "${AWS::Region}") -> Any:
    """A bucket's name: what the site says, or one that nobody else in the world has.

    Args:
        stated: what the site says.
        pattern: what it begins with; `{}` is the short name.
        context: the site.
        region: where it is; the stack's region when left out.
    """
    return stated or sub(f"{pattern.format(context.short)}-${{AWS::AccountId}}-{region}")


def lifecycle_bucket(site: Site, account: str, region: str) -> str:
    """The name of the bucket of the nodes' scripts, before anybody has asked the stack.

    Args:
        site: the site.
        account: the account's number.
        region: the cluster's region.
    """
    stated = site.aws.buckets.lifecycle if site.aws else None
    return stated or f"sagemaker-{short_name(site.cluster.name)}-{account}-{region}"


def word(name: str) -> str:
    """A name as part of a resource's: letters and digits."""
    return "".join(part.capitalize() for part in name.split("-"))
