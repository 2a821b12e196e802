"""The one writer of configuration files."""

from __future__ import annotations

from pathlib import Path

from hpctools.conf import durable
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
        return tuple(_replace(file, folder) for file in bundle.files if not _is_right(file, folder))
    except OSError as error:
        raise HpctoolsError(
            f"cannot write {error.filename or folder}: {error.strerror}",
            "check the folder's permissions and free space",
        ) from None


def _is_right(file: File, folder: Path) -> bool:
    path = folder / file.path
    try:
        mode = path.stat(follow_symlinks=False).st_mode
        return mode == (0o100000 | file.mode) and path.read_text(encoding="utf-8") == file.text
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _replace(file: File, folder: Path) -> Path:
    path = folder / file.path
    durable.replace(path, file.text, file.mode)
    return path
