"""A login node becomes known to the load balancer once.

It is told once for each instance: a node that an administrator has drained must not come back because its
scripts ran again.
"""

from __future__ import annotations

import json
import os

from provision.files import STATE, is_so, on_node, write_whole
from provision.processes import must
from provision.step import Context

SECONDS = 60.0


def _note(context: Context) -> str:
    target = context.settings.section("login_balance")["target_group"]
    instance = os.environ.get("HPCTOOLS_INSTANCE_ID", "")
    return json.dumps({"target_group": target, "address": context.address, "instance": instance}) + "\n"


def is_done(context: Context) -> bool:
    """Whether this instance was registered with this target group."""
    if not context.settings.section("login_balance"):
        return True
    return is_so(on_node(STATE) / "login-balance.json", _note(context))


def do(context: Context) -> None:
    """Register it; to register twice is no error.

    Raises:
        Failure: AWS refuses or does not answer.
    """
    stated = context.settings.section("login_balance")
    target, port = stated["target_group"], stated["port"]
    where = ["--target-group-arn", target, "--targets", f"Id={context.address},Port={port}"]
    must(["aws", "elbv2", "register-targets", *where, "--region", target.split(":")[3]], limit=SECONDS)
    print(f"registered {context.address}:{port}")
    write_whole(on_node(STATE) / "login-balance.json", _note(context), 0o600)
