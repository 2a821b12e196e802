"""Files of the node: where they are, read with a clear failure, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from provision.failures import Failure

STATE = "/var/lib/hpctools-lifecycle"
"""Where a node keeps what outlives a run; root alone reads it."""


def on_node(path: str | Path) -> Path:
    """Return where an absolute path of the node is: below $HPCTOOLS_ROOT, which is empty on a real node."""
    root = os.environ.get("HPCTOOLS_ROOT", "")
    return Path(f"{root}{path}") if root else Path(path)


def read_text(path: Path, what: str) -> str:
    """Return a file's text.

    Args:
        path: where it really is.
        what: what it is, for the message.

    Raises:
        Failure: it is not there, or cannot be read as text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Failure(f"there is no {what} at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{what} {path} cannot be read: {error}") from None


def read_json(path: Path, what: str) -> object:
    """Return what a JSON file says.

    Raises:
        Failure: it is not there, cannot be read, or is no JSON.
    """
    text = read_text(path, what)
    try:
        parsed: object = json.loads(text)
    except ValueError as error:
        raise Failure(f"{what} {path} is damaged: {error}") from None
    return parsed


def is_so(path: Path, text: str, mode: int | None = None) -> bool:
    """Whether a file has exactly this text, and these permission bits where they are stated."""
    try:
        same_mode = mode is None or path.stat().st_mode & 0o7777 == mode
        return same_mode and path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def write_whole(path: Path, text: str, mode: int | None = None, owner: tuple[int, int] | None = None) -> bool:
    """Give a file this text: old or new at every instant, on disk when this returns.

    A link is followed, so that what it points to is replaced and the link stays.

    Args:
        mode: permission bits; those that it has, or 0644 for a new one, when None.
        owner: user and group; those that it has when None.

    Returns:
        Whether anything changed.

    Raises:
        Failure: it cannot be written; the old file is as it was.
    """
    path = Path(os.path.realpath(path))
    if is_so(path, text, mode) and (owner is None or _owner(path) == owner):
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            mode = path.stat().st_mode & 0o7777 if mode is None else mode
            owner = owner or _owner(path)
        _replace(path, text, 0o644 if mode is None else mode, owner)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror or error}; the old one is kept") from None
    return True


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def _replace(path: Path, text: str, mode: int, owner: tuple[int, int] | None) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            os.fchmod(file.fileno(), mode)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
