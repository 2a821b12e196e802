"""munge on this host: without it no command of Slurm's reaches any daemon, and each tries for 50 s to."""

from __future__ import annotations

import re

from hpctools.errors import CommandError, CommandTimeout
from hpctools.slurm.conf_text import logical_lines, pairs
from hpctools.slurm.run import run

_SECONDS = 10.0
REMEDY = "on this host: systemctl status munge, and its log; `hpctools doctor` looks at the key as well"


def credential(auth_type: str, auth_info: str) -> str:
    """What munge here says against a credential of its own; "" when nothing, or where it is not used.

    Args:
        auth_type: slurm.conf's AuthType.
        auth_info: its AuthInfo, which may name another socket.

    Raises:
        CommandError: there is no munge to ask with, or it does not end (CommandTimeout).
    """
    if auth_type not in ("", "auth/munge"):
        return ""
    named = re.search(r"socket=([^,]+)", auth_info)
    socket = [f"--socket={named[1]}"] if named else []
    made = run(["munge", "--no-input", *socket], timeout=_SECONDS, check=False)
    if made.code:
        return _last(made.stderr)
    read = run(["unmunge", *socket], timeout=_SECONDS, check=False, stdin=made.stdout)
    return "" if read.code == 0 else _last(read.stderr or read.stdout)


def trouble(slurm_conf: str) -> str:
    """Why munge keeps Slurm's commands on this host from every daemon; "" when it does not.

    It takes 5 ms, and 2.3 s where munged does not run.

    Args:
        slurm_conf: the text of slurm.conf; what it includes is not looked at.
    """
    said = {key.lower(): value for _, line in logical_lines(slurm_conf) for key, value in pairs(line)}
    try:
        found = credential(said.get("authtype", ""), said.get("authinfo", ""))
    except CommandTimeout as error:
        found = error.message
    except CommandError:
        return ""  # no munge to ask with: nothing is known
    return f"munge does not work on this host, so no daemon of Slurm's can be asked: {found}" if found else ""


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
