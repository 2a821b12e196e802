"""Another root folder for a process and all that it starts: that of a Slurm release, with this interpreter.

As a program, in a mount namespace of its own: `python -m hpctools.sandbox.root FOLDER COMMAND...`

The folder itself is never written to: a layer in memory lies over it and goes with the mount namespace.
The machine's own root stays at hand until `leave_machine`, for what is yet to be shown inside.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpctools.errors import HpctoolsError, SandboxError
from hpctools.sandbox.layout import code_and_interpreter
from hpctools.sandbox.mounting import MS_BIND, MS_REC, bind, make_private, mount
from hpctools.slurm import run

MNT_DETACH = 2
_MACHINE = "/mnt"


def main() -> int:
    """Entry: become the command, under the folder; this code and its interpreter are shown there."""
    folder, *argv = sys.argv[1:]
    here = Path.cwd()
    try:
        make_private()
        shown = {path: os.open(path, os.O_PATH) for path in code_and_interpreter()}
        enter(Path(folder))
        for path, handle in shown.items():
            path.mkdir(parents=True, exist_ok=True)
            bind(f"/proc/self/fd/{handle}", str(path))
            os.close(handle)
        leave_machine()
        os.chdir(here if here.is_dir() else "/")
    except (OSError, HpctoolsError) as error:
        print(f"cannot run under {folder}: {error}", file=sys.stderr)
        return 1
    return run.replace(argv)


def under(folder: Path, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` under a folder; to be run in a mount namespace of its own.

    Under `/` that is `argv` itself. The code that runs us must be on PYTHONPATH or installed.
    """
    entry = [] if folder == Path("/") else [sys.executable, "-m", "hpctools.sandbox.root", str(folder)]
    return [*entry, *argv]


def enter(folder: Path, empty: Sequence[str] = ()) -> None:
    """Make `folder` the root of this mount namespace, whose mounts must be private.

    /proc is fresh; /sys and /dev are the machine's; the Python that runs us is there by its own path.

    Args:
        folder: a whole system.
        empty: folders of it, relative to it, that are to be empty.

    Raises:
        SandboxError: the machine does not let us mount.
    """
    scratch = folder / "mnt"  # to mount on; an overlay shows nothing that is mounted below its folders
    mount("tmpfs", str(scratch), "tmpfs", 0, "mode=755")
    for name in ("upper", "work", "whole"):
        (scratch / name).mkdir()
    for name in empty:
        _hide(folder, name, scratch / "upper")
    whole = scratch / "whole"
    layers = f"lowerdir={folder},upperdir={scratch}/upper,workdir={scratch}/work"
    mount("overlay", str(whole), "overlay", 0, layers)
    for source in _interpreter():
        _show(source, whole)
    mount("proc", f"{whole}/proc", "proc")
    for name in ("sys", "dev"):
        mount(f"/{name}", f"{whole}/{name}", "", MS_BIND | MS_REC)
    _pivot(whole)


def _hide(folder: Path, name: str, upper: Path) -> None:
    """Lay an empty folder over one, with its owner and mode; nothing of what it has shows through.

    The attribute is that by which overlayfs itself marks a folder that replaced another.
    """
    inner = Path(name)
    for part in (*reversed(inner.parents), inner):
        target, seen = upper / part, (folder / part).stat()
        target.mkdir(exist_ok=True)
        target.chmod(seen.st_mode & 0o7777)
        os.chown(target, seen.st_uid, seen.st_gid)
    os.setxattr(upper / inner, "trusted.overlay.opaque", b"y")


def leave_machine() -> None:
    """Give up the machine's own root; from here on nothing outside can be reached by a path."""
    if ctypes.CDLL(None, use_errno=True).umount2(_MACHINE.encode(), MNT_DETACH) != 0:
        raise _refused("leave the machine's root")


def _pivot(whole: Path) -> None:
    os.chdir(whole)
    if ctypes.CDLL(None, use_errno=True).pivot_root(b".", f".{_MACHINE}".encode()) != 0:
        raise _refused(f"make {whole} the root")
    os.chdir("/")


def _refused(what: str) -> SandboxError:
    reason = os.strerror(ctypes.get_errno())
    return SandboxError(f"cannot {what}: {reason}", "the sandbox needs root and the right to mount")


def _interpreter() -> Iterator[Path]:
    """What of the system's own Python must be seen inside; one that lives elsewhere is exposed as a whole."""
    names = [name for name in _links(Path(sys.executable)) if Path("/usr") in name.parents]
    yield from names
    if names:
        yield Path(sysconfig.get_path("stdlib"))


def _links(path: Path) -> Iterator[Path]:
    """A path, and what it leads to link by link."""
    yield path
    if path.is_symlink():
        yield from _links(path.parent / path.readlink())


def _show(source: Path, whole: Path) -> None:
    """Show a file or folder of the machine at its own path, in place of what the release has there."""
    target = whole / source.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.unlink(missing_ok=True)
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    bind(str(source), str(target))


if __name__ == "__main__":
    sys.exit(main())
