"""Section `access` of settings.json, which pam/install.py on the nodes reads."""

from __future__ import annotations

from typing import Any

from hpctools.site import Site

AGENT_SOCKET = "/run/hpctools-login/agent.sock"
"""Where hp-login-agent answers PAM."""


def access_settings(site: Site) -> dict[str, Any]:
    """Return what PAM on the nodes is told.

    Args:
        site: the site.

    Returns:
        JSON values, times in seconds; 0 sessions is no limit, an empty path none.
    """
    access = site.access
    people, compute, login = access.administrators, access.compute, access.login
    return {
        "administrators": {"users": list(people.users), "groups": list(people.groups)},
        "compute": {
            "several_jobs": compute.several_jobs,
            "wait_for_job": compute.wait_for_job,
            "adopt_module": compute.adopt_module or "",
            "slurmd_pid_file": compute.slurmd_pid_file,
        },
        "login": {
            "sessions_per_user": login.sessions_per_user or site.login.max_sessions_per_user,
            "sessions": login.sessions or 0,
            "session_hook": login.session_hook or "",
            "agent_socket": login.agent_socket or _socket_of_agent(site),
            "when_unreachable": site.login.when_unreachable,
        },
    }


def _socket_of_agent(site: Site) -> str:
    """Who has the agent set up wants PAM to ask it, unless they have a program of their own for that."""
    return AGENT_SOCKET if site.login.agent is not None and not site.access.login.session_hook else ""
