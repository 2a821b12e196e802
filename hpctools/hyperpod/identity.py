"""The section `identity` of a node's settings: what its steps 26-sssd and 27-homes do. Pure, no secrets."""

from __future__ import annotations

from typing import Any

from hpctools.identity.sssd import OUR_CA, login_groups, sssd_conf
from hpctools.site.identity import Bind, Homes, Identity
from hpctools.site.model import Site


def identity_settings(site: Site) -> dict[str, Any]:
    """Return the settings; empty for a site without a directory.

    Keys: `sssd_conf` (text); `domain`; `ca` (`path`, `text`) when the site file states certificates; `bind`
    (`file` or `aws_secret`) when the directory wants a password; `login_groups`; `homes` (`make`, `make_on`,
    `root`, `skeleton`, `users`: those who have one made by the step).
    """
    identity = site.identity
    if identity is None:
        return {}
    return {
        "sssd_conf": sssd_conf(site),
        "domain": identity.domain,
        **_certificates(identity),
        **_secret(identity.bind),
        "login_groups": list(login_groups(site)),
        "homes": _homes(site, identity.homes),
    }


def _certificates(identity: Identity) -> dict[str, Any]:
    text = identity.tls.ca_certificate
    return {"ca": {"path": OUR_CA, "text": text.strip() + "\n"}} if text else {}


def _secret(bind: Bind | None) -> dict[str, Any]:
    return {"bind": bind.secret.model_dump(exclude_none=True)} if bind is not None else {}


def _homes(site: Site, homes: Homes) -> dict[str, Any]:
    users = sorted(user.name for user in site.users()) if homes.make == "by_step" else []
    return {**homes.model_dump(exclude={"make_on"}), "make_on": list(homes.make_on), "users": users}
