"""Logs of Slurm and of the lifecycle scripts are rotated before they fill the disk."""

from __future__ import annotations

from provision.files import is_so, on_node, write_whole
from provision.step import Context

RULES = "/etc/logrotate.d/hpctools"


def text(keep: int, max_size_mib: int, user: str) -> str:
    """The rules.

    slurmctld, slurmdbd and slurmd open their logs anew at SIGUSR2; our own log is opened for each line. To
    copy and empty them would lose lines, and a restart would disturb jobs.
    """
    rotation = f"""\
    daily
    rotate {keep}
    maxsize {max_size_mib}M
    missingok
    notifempty
    compress
    delaycompress
"""
    return f"""\
# Made by hpctools' lifecycle scripts.
/var/log/slurm/*.log /var/log/slurmctld.log /var/log/slurmd.log /var/log/slurmdbd.log {{
    su root root
    create 0640 {user} root
{rotation}    sharedscripts
    postrotate
        for daemon in slurmctld slurmdbd slurmd; do
            pkill -x -USR2 "$daemon" || true
        done
    endscript
}}

/var/log/provision/provisioning.log {{
    su root root
    create 0640 root root
{rotation}}}
"""


def _wanted(context: Context) -> str:
    stated = context.settings.section("log_rotation")
    user = context.settings.section("slurm").get("user", "slurm")
    return text(stated["keep"], stated["max_size_mib"], user)


def is_done(context: Context) -> bool:
    """Whether the rules are there."""
    stated = context.settings.section("log_rotation")
    return not stated or is_so(on_node(RULES), _wanted(context), 0o644)


def do(context: Context) -> None:
    """Write them."""
    write_whole(on_node(RULES), _wanted(context), 0o644)
