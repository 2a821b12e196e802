"""Pid 1 of the namespace that all machines live in. It reaps; when it ends, everything ends."""

from __future__ import annotations

import sys

from hpctools.sandbox.holder import reap


def main() -> int:
    """Entry: never returns by itself."""
    return reap()


if __name__ == "__main__":
    sys.exit(main())
