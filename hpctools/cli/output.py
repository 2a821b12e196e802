"""What a command prints to standard output."""

from __future__ import annotations

import sys
from typing import Any


def show(what: str | dict[str, Any]) -> None:
    """Print a text byte for byte as it will be written, or an object as one line of JSON."""
    if not isinstance(what, str):
        import json

        what = json.dumps(what) + "\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(what.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
