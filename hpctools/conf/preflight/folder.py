"""A configuration folder, read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hpctools.conf.bundle import Bundle
from hpctools.conf.preflight.statements import OUTSIDE, Folder, cluster_name, first, includes, statements
from hpctools.conf.text import HEADER
from hpctools.errors import HpctoolsError

_LARGEST = 8 * 1024 * 1024
_SECRETS = ("slurmdbd.conf", "*.key", "*.pem", "munge.key")


def read_folder(folder: Path) -> dict[str, str]:
    """Read the texts of a configuration folder by their path in it, without what is secret.

    Files that are large, that are no text or that we may not read are left out.

    Raises:
        HpctoolsError: there is no such folder.
    """
    if not folder.is_dir():
        raise HpctoolsError(f"{folder} is no folder", "name a folder with a slurm.conf")
    texts = ((str(path.relative_to(folder)), _text(path)) for path in _paths(folder))
    return {name: text for name, text in texts if text is not None}


def bundle_files(bundle: Bundle, folder: Path) -> dict[str, str]:
    """The texts that slurmctld finds once a bundle is live: the bundle's, and what else lies there.

    What an earlier bundle brought and this one does not goes with it, and is no part of them.
    """
    there = read_folder(folder) if folder.is_dir() else {}
    others = {name: text for name, text in there.items() if not _made(folder / name, text)}
    return {**others, **{file.path: file.text for file in bundle.files}}


def _made(path: Path, text: str) -> bool:
    """Whether apply put a file there: as a link into its configurations, or one with our first line."""
    return text.startswith(HEADER[:20]) or (path.is_symlink() and ".hpctools" in path.readlink().parts)


def with_outside(files: Mapping[str, str], folder: Path, root: Path) -> dict[str, str]:
    """Add the files that are included from outside the folder, under the paths that they are staged by.

    Args:
        files: texts by path relative to the folder; those from outside by their absolute path, if at all.
        folder: where they are meant to lie.
        root: where the outside is looked for.
    """
    place = Folder(str(folder), cluster_name(files))
    found = {(f"{OUTSIDE}{path}" if path.startswith("/") else path): text for path, text in files.items()}
    waiting, seen = ["slurm.conf"], set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        if name.startswith(OUTSIDE) and name not in found:
            text = _text(root / name.removeprefix(f"{OUTSIDE}/"))
            found.update({} if text is None else {name: text})
        waiting += [each for each in includes(found.get(name, ""), place) if each not in seen]
    return found


def live_state(files: Mapping[str, str], folder: Path) -> Path | None:
    """The StateSaveLocation of a slurmctld that has run on this machine, if we may read it; None else.

    Args:
        files: the configuration's texts.
        folder: where they lie.
    """
    stated = first(list(statements(files, str(folder))), "statesavelocation")
    try:
        with (Path(stated) / "assoc_mgr_state").open("rb"):
            return Path(stated) if stated else None
    except OSError:
        return None


def _paths(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file() and not any(path.match(each) for each in _SECRETS):
            yield path


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
