"""What a command prints to standard output."""

from __future__ import annotations

import math
import sys
from typing import Any


def show(what: str | dict[str, Any]) -> None:
    """Print a text byte for byte as it will be written, or an object as one line of JSON."""
    if not isinstance(what, str):
        what = json_line(what)
    sys.stdout.flush()
    sys.stdout.buffer.write(what.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def json_line(value: object) -> str:
    """A value as one line of JSON; a loss that is not finite becomes null, since JSON has no word for it."""
    import json

    try:
        return json.dumps(value, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(_finite(value)) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
