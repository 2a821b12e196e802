"""Who may log in where, beside those whom the directory knows: what PAM on the nodes is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hpctools.site.base import Model
from hpctools.site.scalars import Duration, UserName, matching

UnixGroup = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z_](?:[A-Za-z0-9_.@ -]{0,62}[A-Za-z0-9_.@-])?",
            "a Unix group: letters, digits, spaces and _.@-, at most 64 characters",
        )
    ),
]

PamPath = Annotated[
    str,
    BeforeValidator(
        matching(
            r"/[A-Za-z0-9_./%+-]{1,200}", "an absolute path of letters, digits and _./%+-, without blanks"
        )
    ),
]


class Administrators(Model):
    """Who gets in everywhere, whatever is broken. `root` is one of them without being named."""

    users: tuple[UserName, ...] = ()
    """Accounts. One that lies in /etc/passwd of each node gets in even when the directory does not answer."""
    groups: tuple[UnixGroup, ...] = ("sudo", "wheel")
    """Unix groups whose members are administrators; one that a node does not have does no harm."""


class ComputeAccess(Model):
    """Logging in on compute nodes: people get in while a job of theirs runs there."""

    several_jobs: Literal["newest", "deny"] = "newest"
    """Somebody with several jobs on a node, who does not come from within one of them, is put into the
    newest, or refused."""
    wait_for_job: Annotated[Duration, Field(ge=0, le=60)] = 10
    """How long a login waits for a job that is just starting."""
    adopt_module: PamPath | None = None
    """Where pam_slurm_adopt.so is; looked for in the usual folders when left out."""
    slurmd_pid_file: PamPath = "/var/run/slurmd.pid"
    """slurm.conf's SlurmdPidFile; `%n` is the node's name."""


class LoginAccess(Model):
    """Logging in on login nodes: so many sessions on each. `login.max_sessions_per_user` is for all of them
    together."""

    sessions_per_user: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Sessions that one person may have on one login node; `login.max_sessions_per_user` when left out."""
    sessions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Sessions that all people together may have on one login node; no limit when left out."""
    session_hook: PamPath | None = None
    """A program on the node that is asked too: `PROGRAM open USER PID START`; its exit code 77 refuses."""
    agent_socket: PamPath | None = None
    """The socket of the node's `hp-login-agent`, which asks the service that counts the sessions of all login
    nodes: `/run/hpctools-login/agent.sock`. Instead of `session_hook`."""


class Access(Model):
    """Who may log in on which node."""

    administrators: Administrators = Administrators()
    """Who gets in everywhere."""
    compute: ComputeAccess = ComputeAccess()
    """Compute nodes."""
    login: LoginAccess = LoginAccess()
    """Login nodes."""
