"""The one writer of configuration files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hpctools.conf.bundle import Bundle, File
from hpctools.errors import HpctoolsError


def write(bundle: Bundle, folder: Path) -> tuple[Path, ...]:
    """Write a bundle's files into a folder, which is made when missing.

    Each file is old or new at every instant, never in between, and never readable by more people than its
    mode says; files that are already right are left alone.

    Returns:
        The paths that were written.

    Raises:
        HpctoolsError: the folder or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = tuple(_replace(file, folder) for file in bundle.files if not _is_right(file, folder))
        if written:
            _sync(folder)
    except OSError as error:
        raise HpctoolsError(
            f"cannot write {error.filename or folder}: {error.strerror}",
            "check the folder's permissions and free space",
        ) from None
    return written


def _is_right(file: File, folder: Path) -> bool:
    path = folder / file.path
    try:
        mode = path.stat(follow_symlinks=False).st_mode
        return mode == (0o100000 | file.mode) and path.read_text(encoding="utf-8") == file.text
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _replace(file: File, folder: Path) -> Path:
    path = folder / file.path
    # mkstemp makes it 0600, so that a password is never readable by others, not even for a moment.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(file.text)
            stream.flush()
            os.fchmod(descriptor, file.mode)
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
