"""Homes on a shared file system, made by a node whose root may write there: whole, or not at all.

A home is made beside its place, with the skeleton in it and its owner on everything, and then renamed:
whoever looks at it, and whoever kills the step, finds a home or none.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from provision.failures import Failure
from provision.files import on_node
from provision.step import Context

_FIRST_PERSON = 1000
_NEW = ".hpctools-new-"


def is_done(context: Context) -> bool:
    """Whether everybody whom this node knows has a home."""
    homes = _section(context)
    if not homes:
        return True
    return not any(_account(name) for name in _without_home(homes))


def do(context: Context) -> None:
    """Make the homes that are missing.

    Raises:
        Failure: the folder cannot be written, or the directory knows nobody.
    """
    homes = _section(context)
    root = _root(homes)
    _make_root(root)
    for left in root.glob(f"{_NEW}*"):
        shutil.rmtree(left)
    missing = list(_without_home(homes))
    found = [account for name in missing if (account := _account(name)) is not None]
    for name in sorted(set(missing) - {account.pw_name for account in found}):
        print(f"{name} has no home: no account on this node, or one of the machine's own")
    if missing and not found and len(missing) == len(homes.get("users", [])):
        raise Failure("none of the site's people has an account on this node: does sssd answer? (26-sssd)")
    for account in found:
        _make(root, account, on_node(str(homes["skeleton"])))


def _section(context: Context) -> Mapping[str, Any]:
    homes: Mapping[str, Any] = context.settings.section("identity").get("homes") or {}
    return homes if homes.get("make") == "by_step" and context.role in homes.get("make_on", []) else {}


def _root(homes: Mapping[str, Any]) -> Path:
    return on_node(str(homes["root"]))


def _without_home(homes: Mapping[str, Any]) -> Iterator[str]:
    root = _root(homes)
    return (name for name in homes.get("users", []) if not os.path.lexists(root / name))


def _account(name: str) -> pwd.struct_passwd | None:
    """The account of a person; None for nobody, and for the machine's own."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return found if found.pw_uid >= _FIRST_PERSON else None


def _make_root(root: Path) -> None:
    try:
        root.mkdir(mode=0o755, exist_ok=True)
    except FileNotFoundError:
        raise Failure(f"there is no folder for {root}: is the file system mounted? (10-mounts)") from None
    except OSError as error:
        raise _refused(root, error) from None


def _make(root: Path, account: pwd.struct_passwd, skeleton: Path) -> None:
    made = None
    try:
        made = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
        shutil.copytree(skeleton, made, symlinks=True, dirs_exist_ok=True)
        _give(made, account)
        made.rename(root / account.pw_name)
    except OSError as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise _refused(root, error) from None
    print(f"made the home {root / account.pw_name}")


def _give(folder: Path, account: pwd.struct_passwd) -> None:
    """The home itself last: nobody is in it before it is whole."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(place, name), account.pw_uid, account.pw_gid)
    folder.chmod(0o700)
    os.chown(folder, account.pw_uid, account.pw_gid)


def _refused(root: Path, error: OSError) -> Failure:
    if isinstance(error, PermissionError):
        return Failure(
            f"root may not make homes in {root}: the file system takes root's rights away on this node (root "
            "squash); name nodes that keep them in identity.homes.make_on, or exempt this one",
            hopeless=True,
        )
    return Failure(f"a home in {root} cannot be made: {error.strerror or error}")
