"""An agent's settings, from the site file. Pure."""

from __future__ import annotations

import yaml

from hpctools.login.agent.settings import LONGEST_PAUSE, Settings
from hpctools.site.hostlist import expand
from hpctools.site.model import Site

_HEAD = "# Made by `hpctools login render` from the site file; changes belong there.\n"


def agent_settings(site: Site) -> Settings:
    """What agents on the site's login nodes are told; each knows its own name."""
    login, access = site.login, site.access
    agent = login.agent
    given = {
        "metrics_address": agent.metrics_address if agent is not None else None,
        "check_address": agent.check_address if agent is not None else None,
        "drain_notice": float(agent.drain_notice) if agent is not None else None,
        "addresses": stated_addresses(site) or None,
        "administrators": access.administrators,
        "balance_on": login.balance_on,
        "most_sessions": access.login.sessions,
        "sessions_per_user": access.login.sessions_per_user or login.max_sessions_per_user,
        "when_unreachable": login.when_unreachable,
        "every": min(LONGEST_PAUSE, login.silent_after / 3),
        "care": login.care,
        "idle": login.idle,
        "check_port": login.haproxy.agent_port if login.haproxy is not None else None,
        "sshd_port": login.haproxy.node_port if login.haproxy is not None else None,
    }
    return Settings().model_copy(update={key: value for key, value in given.items() if value is not None})


def stated_addresses(site: Site) -> dict[str, str]:
    """Login nodes' addresses by name, of those groups that state them."""
    return {
        name: address
        for group in site.node_groups
        if group.role == "login" and group.addresses is not None
        for name, address in zip(site.node_names(group.name), expand(group.addresses), strict=False)
    }


def settings_text(settings: Settings) -> str:
    """The settings as the agent reads them (`hpctools.login.agent.settings.read_settings`)."""
    stated = settings.model_dump(mode="json", exclude_defaults=True)
    return _HEAD + (yaml.safe_dump(stated, sort_keys=False) if stated else "{}\n")
