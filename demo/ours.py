"""Which sandbox is the demo's own to take down."""

from __future__ import annotations

from hpctools.errors import SandboxError
from hpctools.sandbox import fall
from hpctools.sandbox.cluster import Sandbox

MAKER = "./dev demo"


def check(sandbox: Sandbox) -> None:
    """Leave a sandbox alone that somebody made for themselves.

    Raises:
        SandboxError: it is such a one, or no sandbox's record can be read.
    """
    found = sandbox.record()
    if found is not None and found.maker != MAKER:
        raise SandboxError(
            f"the sandbox in {sandbox.layout.root} was not made by {MAKER}, which would take it down",
            f"take it down yourself (./dev shell, then: hpctools sandbox down), or name another folder: "
            f"HPCTOOLS_SANDBOX=FOLDER {MAKER}",
        )


def take_down(sandbox: Sandbox) -> None:
    """End the demo's own sandbox; there need be none.

    Raises:
        SandboxError: as `check`; or a process does not end.
    """
    check(sandbox)
    fall.down(sandbox)
