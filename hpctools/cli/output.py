"""What a command prints to standard output."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from hpctools.errors import HpctoolsError, UsageError


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


def refuse_folder(path: Path) -> None:
    """Refuse a folder where a file is to be written.

    Raises:
        UsageError: it is one.
    """
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", "name a file")


def save(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file as a whole or not at all; its folder is made when missing.

    A link is followed. What is no file (`/dev/stdout`, a named pipe) is written to, and stays what it is.

    Args:
        mode: permission bits of a file; others may read it when left out.

    Raises:
        UsageError: it is a folder.
        HpctoolsError: it cannot be written.
    """
    from hpctools.conf import durable

    refuse_folder(path)
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(path.resolve(), text, mode)
    except OSError as error:
        raise HpctoolsError(
            f"cannot write {error.filename or path}: {error.strerror}",
            "check the folder's permissions and free space",
        ) from None
