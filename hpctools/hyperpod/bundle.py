"""A bundle: all that a node needs to configure itself, as files; its name is the hash of what is in it.

It holds the lifecycle scripts, pam/ and site/ (settings.json and what was compiled for Slurm), and no secret.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.bundle_secrets import refuse_secrets

_HASH_CHARACTERS = 16
_ENTRY, _SETTINGS = "on_create.sh", "site/settings.json"
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class BundleFile:
    """One file.

    Attributes:
        path: relative, with slashes.
        content: its bytes.
        executable: whether it is a program.
    """

    path: str
    content: bytes
    executable: bool = False


@dataclass(frozen=True)
class NodeBundle:
    """All files, in the order of their paths."""

    files: tuple[BundleFile, ...]

    @property
    def hash(self) -> str:
        """The same for the same files, whenever and wherever they were put together."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{file.path}\0{int(file.executable)}\0{len(file.content)}\0".encode())
            digest.update(file.content)
        return digest.hexdigest()[:_HASH_CHARACTERS]

    def file(self, path: str) -> BundleFile:
        """Return a file by its path.

        Raises:
            HpctoolsError: there is none.
        """
        for file in self.files:
            if file.path == path:
                return file
        raise HpctoolsError(f"the bundle has no {path}")


def bundle(
    settings: Mapping[str, Any], slurm: Mapping[str, str], more: Mapping[str, str] | None = None
) -> NodeBundle:
    """Put a bundle together.

    Args:
        settings: site/settings.json.
        slurm: texts for site/slurm, by name.
        more: texts beside on_create.sh, by name: provisioning_parameters.json in HyperPod's legacy style.

    Raises:
        HpctoolsError: a secret is in it, or this installation lacks the scripts.
    """
    texts = {"site/settings.json": json.dumps(settings, indent=2, sort_keys=True) + "\n"}
    texts |= {f"site/slurm/{name}": text for name, text in slurm.items()} | dict(more or {})
    made = (BundleFile(path, text.encode()) for path, text in texts.items())
    files = [*_shipped("lifecycle-scripts", ""), *_shipped("pam", "pam/"), *made]
    refuse_secrets({file.path: file.content for file in files})
    return NodeBundle(tuple(sorted(files, key=lambda file: file.path)))


def write_bundle(made: NodeBundle, folder: Path) -> None:
    """Write a bundle into a folder that is new, empty, or has an earlier bundle, of which nothing stays.

    Interrupted, the folder is no bundle, and still one of ours: the next call writes it.

    Raises:
        HpctoolsError: something else is in the folder, or it cannot be written.
    """
    try:
        _clear(folder)
        (folder / _SETTINGS).parent.mkdir(parents=True, exist_ok=True)
        for file in sorted(made.files, key=lambda file: (file.path == _SETTINGS, file.path != _ENTRY)):
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(0o755 if file.executable else 0o644)
    except OSError as error:
        raise HpctoolsError(
            f"cannot write {error.filename or folder}: {error.strerror}",
            "check the folder's permissions and free space",
        ) from None


def read_bundle(folder: Path) -> NodeBundle:
    """Read a bundle that was written.

    Raises:
        HpctoolsError: there is none, or a secret was put into it.
    """
    if not (folder / _SETTINGS).is_file():
        raise HpctoolsError(f"{folder} is no bundle", "make one: hpctools hyperpod bundle SITE --out FOLDER")
    files = tuple(sorted(_files(folder, ""), key=lambda file: file.path))
    refuse_secrets({file.path: file.content for file in files})
    return NodeBundle(files)


def _clear(folder: Path) -> None:
    if not folder.exists() or all(path.is_dir() for path in folder.rglob("*")):
        return
    if not (folder / _ENTRY).is_file() or not (folder / _SETTINGS).parent.is_dir():
        raise HpctoolsError(f"{folder} has something else in it", "name a new or an empty folder")
    (folder / _SETTINGS).unlink(missing_ok=True)
    for file in list(_files(folder, "")):
        if file.path != _ENTRY:
            (folder / file.path).unlink()


def _shipped(name: str, prefix: str) -> Iterator[BundleFile]:
    """A folder of this installation: in the package of a wheel, else beside it in a checkout."""
    for root in (_PACKAGE / "nodes" / name, _PACKAGE.parent / name):
        if root.is_dir():
            yield from _files(root, prefix)
            return
    raise HpctoolsError(f"this installation lacks its folder {name}", "install hpctools again")


def _files(root: Path, prefix: str) -> Iterator[BundleFile]:
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            yield BundleFile(prefix + "/".join(parts), path.read_bytes(), executable)
