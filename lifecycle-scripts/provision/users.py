"""People whom the nodes themselves know: the same number on every node, a home that is theirs alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from provision.failures import Failure
from provision.files import on_node
from provision.processes import must
from provision.step import Context
from provision.unix import accounts

SKELETON = "/etc/skel"
SHELL = "/bin/bash"


def _people(context: Context) -> Mapping[str, int]:
    return context.settings.section("users").get("people") or {}


def _home(context: Context, name: str) -> Path:
    return Path(context.settings.section("users")["homes"]) / name


def is_done(context: Context) -> bool:
    """Whether everybody is there with their number and their home."""
    people = _people(context)
    known = accounts() if people else {}
    return all(
        known.get(name) == (number, number) and _is_home(on_node(_home(context, name)), number)
        for name, number in people.items()
    )


def do(context: Context) -> None:
    """Make those who are missing.

    Raises:
        Failure: a name or a number belongs to somebody else on this node.
    """
    people = _people(context)
    known = accounts()
    _refuse_others(people, known)
    for name, number in people.items():
        if name not in known:
            _make(name, number, _home(context, name))
        _make_home_or_say_why(on_node(_home(context, name)), number)


def _refuse_others(people: Mapping[str, int], known: Mapping[str, tuple[int, int]]) -> None:
    """A number that differs between nodes gives one person another's files."""
    owners = {number: name for name, (number, _) in known.items()}
    for name, number in people.items():
        user, group = known.get(name, (number, number))
        if user != number:
            raise Failure(f"{name} has number {user} here, and the site says {number}", hopeless=True)
        if group != number:
            raise Failure(
                f"{name} has the group {group} here, and the site wants one of their own, {number}: "
                f"groupadd --gid {number} {name} && usermod --gid {number} {name}",
                hopeless=True,
            )
        if owners.get(number, name) != name:
            raise Failure(
                f"{number}, which the site gives to {name}, is {owners[number]}'s here", hopeless=True
            )


def _make(name: str, number: int, home: Path) -> None:
    root = os.environ.get("HPCTOOLS_ROOT", "")
    prefix = ("--prefix", root) if root else ()
    groups = on_node("/etc/group").read_text(encoding="utf-8").splitlines()
    if not any(line.startswith(f"{name}:") for line in groups):
        must(["groupadd", *prefix, "--gid", str(number), name], limit=30)
    stated = ["--uid", str(number), "--gid", str(number), "--shell", SHELL, "--home-dir", str(home)]
    must(["useradd", *prefix, *stated, "--no-create-home", name], limit=30)
    print(f"added {name} ({number})")


def _is_home(path: Path, number: int) -> bool:
    try:
        return path.is_dir() and path.stat().st_uid == number
    except OSError:
        return False


def _make_home_or_say_why(path: Path, number: int) -> None:
    try:
        _make_home(path, number)
    except PermissionError as error:
        raise Failure(
            f"root may not make the home {path}: {error.strerror}; the file system takes root's rights away "
            "on this node (root squash): exempt it, or make the homes on a node that keeps them"
        ) from None
    except OSError as error:
        raise Failure(f"the home {path} cannot be made: {error.strerror or error}") from None


def _make_home(path: Path, number: int) -> None:
    """Make a home whole or not at all; another node may be making the same one on a shared file system."""
    if path.exists():
        if path.stat().st_uid != number:
            raise Failure(f"{path} belongs to number {path.stat().st_uid}, not {number}", hopeless=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.uname().nodename}.new")
    shutil.rmtree(new, ignore_errors=True)  # of a run that was killed
    skeleton = on_node(SKELETON)
    if skeleton.is_dir():
        shutil.copytree(skeleton, new, symlinks=True)
    else:
        new.mkdir()
    for each in (new, *new.rglob("*")):
        os.chown(each, number, number, follow_symlinks=False)
    new.chmod(0o700)
    try:
        new.rename(path)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if not path.exists():  # else the other node was faster
            raise
