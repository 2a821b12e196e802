"""What sshd of a login node is told of those who connect and do not log in, or who vanish. Pure."""

from __future__ import annotations

from collections.abc import Mapping

PATH = "sshd_config.d/20-hpctools-login.conf"
"""Below /etc/ssh. sshd takes the first word that it reads of a setting, but of MaxStartups the last one."""

SETTINGS: Mapping[str, str] = {
    "LoginGraceTime": "60",
    "MaxStartups": "300:30:600",
    "ClientAliveInterval": "60",
    "ClientAliveCountMax": "3",
}
"""sshd's own are 120, 10:30:100 and 0: a hundred connections that say nothing would keep everybody out for
two minutes, and a session whose laptop is gone would be counted for hours."""

_HEAD = """\
# Made by `hpctools login render`: /etc/ssh/{path} of each login node; then reload sshd.
# Who connects and does not log in is let go after a minute; until there are 300 of them nobody is refused.
# Who vanishes is noticed after three minutes; a balancer sees that a quiet session lives.
# sshd 9.8 and later: exempt your networks and balancers in a file beside this one, for whose connections end
# without a login (docs/login.md): PerSourcePenaltyExemptList 192.0.2.0/24
# A MaxStartups in sshd_config itself would count instead of this one: take it out there.
"""


def configuration() -> str:
    """The whole file."""
    lines = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
    return _HEAD.format(path=PATH) + lines
