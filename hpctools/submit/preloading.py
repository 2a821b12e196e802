"""The policy's `preload`: which modules each node of an elastic run imports once, for all its workers."""

from __future__ import annotations

from hpctools.errors import SubmitError
from hpctools.python_command import FILE, MODULE, python_command
from hpctools.submit.intent import Intent
from hpctools.submit.policy_file import PolicyFile


def preload_of(intent: Intent, policy: PolicyFile | None) -> tuple[str, ...] | None:
    """The modules; None: the policy file has no such section, and workers are started one by one.

    Raises:
        SubmitError: workers of this command cannot be forked.
    """
    if policy is None or policy.preload is None:
        return None
    place = policy.place("preload")
    if intent.settings.get("elastic-mode") == "restart":
        raise SubmitError(
            f"{place}: preload: is for the loaders of hpctools.elastic, not for restart mode",
            "leave it out",
        )
    command = python_command(intent.command or ())
    if command is None or command.kind not in (FILE, MODULE) or not command.target:
        raise SubmitError(
            f"{place}: preload: needs a command that starts Python with a script or a module",
            "write hp-submit ... -- python train.py, or leave `preload` out",
        )
    return policy.preload
