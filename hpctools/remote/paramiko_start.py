"""Paramiko, loaded without what we do not use of it."""

from __future__ import annotations

import sys
from typing import cast


def load() -> None:
    """Import paramiko without invoke: a third of its start, for `Match exec` in its own reader of the files.

    Paramiko does without where it is not installed, and `ssh -G` reads those files for us.

    Raises:
        ImportError: there is no paramiko.
    """
    if "invoke" in sys.modules:
        return
    modules = cast("dict[str, object]", sys.modules)
    modules["invoke"] = None
    try:
        import paramiko  # noqa: F401
    finally:
        del modules["invoke"]
