"""Run a program where /etc/pam.d is a copy of its own: libpam reads includes nowhere else."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """\
set -eu
folder=$1
shift
if [ ! -d "$folder/pam.d" ]; then mkdir "$folder/pam.d" && cp -a /etc/pam.d/. "$folder/pam.d"; fi
mount --bind "$folder/pam.d" /etc/pam.d
mount -t tmpfs none /run
exec env -u SUDO_USER "PYTHONPATH=$0" "$@"
"""


def module(name: str) -> Path:
    """One of libpam's own modules."""
    folders = ("lib/*/security", "lib64/security")
    return next(path for folder in folders for path in Path("/usr").glob(f"{folder}/{name}"))


def line(folder: Path, argv: Sequence[str]) -> list[str]:
    """The command line; the process that it starts becomes the program."""
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", SCRIPT, str(ROOT), str(folder), *argv]


def run(
    folder: Path, argv: Sequence[str], stdin: str = "", limit: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `folder`/pam.d is its /etc/pam.d and stays."""
    words = line(folder, argv)
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=limit, check=False)


def installer(folder: Path, verb: str, *words: str, sudo: str = "") -> subprocess.CompletedProcess[str]:
    """Run the installer with its other folders below `folder`; `sudo` is who calls it so."""
    places = [
        "--library",
        f"{folder}/library",
        "--state",
        f"{folder}/state",
        "--sessions",
        f"{folder}/sessions",
    ]
    by = ["env", f"SUDO_USER={sudo}"] * bool(sudo)
    return run(folder, [*by, "/usr/bin/python3", str(ROOT / "pam/install.py"), verb, *places, *words])
