"""What `--upload` names: which files, and how each is called below the run folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hpctools.errors import SubmitError
from hpctools.remote.names import inner_path
from hpctools.remote.names import shown as printable


def uploads(word: str, cwd: Path, tell: Callable[[str], None]) -> list[tuple[str, Path]]:
    """A file, or all files of a folder: below the present folder as it lies there, else by its last name.

    Args:
        tell: says what of a folder is not sent.

    Returns:
        Paths below the run folder, and where each file is here.

    Raises:
        UsageError: a name would be none there.
        SubmitError: there is no such file, or a folder cannot be listed.
    """
    path = cwd / word
    name = _name(word, cwd)
    if _is_file(path):
        return [(str(inner_path(name)), path)]
    if not path.is_dir():
        raise SubmitError(f"there is no file {path}", "check what --upload names")
    stem = "" if name == "." else f"{name}/"
    found = sorted(_inside(path, tell))
    return [(str(inner_path(f"{stem}{each.relative_to(path)}")), each) for each in found]


def _name(word: str, cwd: Path) -> str:
    """As the person wrote it: a link has its own name, not that of what it leads to."""
    normal = os.path.normpath(word)
    if Path(normal).is_absolute() or normal.split("/")[0] == "..":
        return Path(os.path.normpath(cwd.absolute() / word)).name
    return normal


def _inside(top: Path, tell: Callable[[str], None]) -> Iterator[Path]:
    for here, folders, names in os.walk(top, onerror=_refuse):
        if not folders and not names:
            tell(f"{printable(here)} is not sent: it is an empty folder; mkdir -p it in the script")
        for each in sorted(Path(here) / name for name in (*folders, *names)):
            if _is_file(each):
                yield each
            elif each.is_symlink() or not each.is_dir():
                tell(f"{printable(str(each))} is not sent: it is no file but a link to a folder, or the like")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        _refuse(error)
        raise


def _refuse(error: OSError) -> None:
    """What cannot be seen cannot be left out silently: the job would miss it."""
    raise SubmitError(
        printable(f"cannot look into {error.filename}: {error.strerror}"),
        "make it readable for you, or name what is to go along: --upload FILE",
    ) from None
