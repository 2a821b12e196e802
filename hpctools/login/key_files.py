"""Files of host keys, and what ssh-keygen says of them."""

from __future__ import annotations

import os
from pathlib import Path

from hpctools.errors import UsageError
from hpctools.slurm.run import run

SECONDS = 60.0


def files(key: Path) -> tuple[Path, Path, Path]:
    """A private key, its public half and its certificate."""
    return key, key.with_name(f"{key.name}.pub"), key.with_name(f"{key.name}-cert.pub")


def make_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless something is there.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise UsageError(f"cannot make {path}: {error.strerror}", f"make {path.parent} first") from None


def make(path: Path, kind: str) -> None:
    """Make a key, unless it is there."""
    if not path.exists():
        run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "login nodes", "-f", str(path)], timeout=SECONDS)


def fingerprint(path: Path) -> str:
    """The fingerprint of a key, as ssh shows it."""
    return run(["ssh-keygen", "-l", "-f", str(path)], timeout=SECONDS).stdout.split()[1]


def public(path: Path) -> str:
    """What a .pub file has of a key, without its comment."""
    return " ".join(path.read_text().split()[:2])


def derived(path: Path) -> str:
    """The same, made from the private key."""
    return " ".join(half(path).split()[:2])


def half(path: Path) -> str:
    """The public half of a private key, as a .pub file has it."""
    return run(["ssh-keygen", "-y", "-f", str(path)], timeout=SECONDS).stdout


def write(path: Path, text: str, mode: int) -> None:
    """Write a whole file or nothing; nobody else can read it before it has its mode."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
