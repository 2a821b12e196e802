"""What a command prints to standard output."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from hpctools.errors import HpctoolsError


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


def save(path: Path, text: str) -> None:
    """Write a file that others may read, as a whole or not at all; its folder is made when missing.

    Raises:
        HpctoolsError: it cannot be written.
    """
    from hpctools.conf import durable

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(path, text, 0o644)
    except OSError as error:
        raise HpctoolsError(
            f"cannot write {error.filename or path}: {error.strerror}",
            "check the folder's permissions and free space",
        ) from None
