"""What a step in Python is: two functions, `is_done` and `do`, and `main` that answers the runner.

#!/usr/bin/env python3
# roles: compute
# limit: 60
from provision.step import main
from provision.mounts import do, is_done
main(is_done, do)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from provision.failures import HOPELESS, Failure
from provision.settings import Settings, read_settings


@dataclass(frozen=True)
class Context:
    """What a step knows.

    Attributes:
        settings: the site's settings.
        role: controller, login, compute or unknown.
        node: the short host name.
        group: the instance group.
        address: the node's own address.
        controllers: addresses of the controllers, the primary first.
        resource_config: where HyperPod's file is.
    """

    settings: Settings
    role: str
    node: str
    group: str
    address: str
    controllers: tuple[str, ...]
    resource_config: Path = Path("/opt/ml/config/resource_config.json")

    @property
    def is_primary(self) -> bool:
        """Whether this is the controller that leads: the only one when nothing names a primary."""
        return self.role == "controller" and self.address == (self.controllers or (self.address,))[0]


def context() -> Context:
    """Read it from the environment that the runner made."""
    env = os.environ
    controllers = env.get("HPCTOOLS_CONTROLLERS", "")
    return Context(
        settings=read_settings(Path(env["HPCTOOLS_SETTINGS"])),
        role=env.get("HPCTOOLS_ROLE", ""),
        node=env.get("HPCTOOLS_NODE", ""),
        group=env.get("HPCTOOLS_GROUP", ""),
        address=env.get("HPCTOOLS_ADDRESS", ""),
        controllers=tuple(controllers.split(",")) if controllers else (),
        resource_config=Path(env["HPCTOOLS_RESOURCE_CONFIG"]),
    )


def main(is_done: Callable[[Context], bool], do: Callable[[Context], None]) -> None:
    """Answer `check` with exit code 0 (done) or 1 (to do), and `do` with 0, 1 or 78 (hopeless)."""
    verb = sys.argv[1] if len(sys.argv) == 2 else ""
    if verb not in ("check", "do"):
        sys.exit(f"usage: {sys.argv[0]} check|do")
    try:
        found = context()
        if verb == "check":
            sys.exit(0 if is_done(found) else 1)
        do(found)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(HOPELESS if failure.hopeless and verb == "do" else 1)
    except OSError as error:  # a full disk, say
        print(f"error: {error.filename or 'system'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
