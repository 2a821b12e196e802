"""People's commands on a login node's usual PATH: links to where the image has hpctools.

`ssh NODE hp-submit` starts no login shell, so nothing of /etc/profile.d makes it known there.
"""

from __future__ import annotations

from pathlib import Path

from provision.failures import Failure
from provision.files import on_node
from provision.step import Context

FOLDER = "/opt/hpctools/bin"
PLACE = "/usr/local/bin"
COMMANDS = ("hpctools", "hp-submit", "hp-status", "hp-cancel", "hp-logs", "hp-fetch", "hp-login")


def is_done(context: Context) -> bool:
    """Whether each command that the image has can be found, be it the site's own of that name."""
    return not _missing()


def do(context: Context) -> None:
    """Link them; what has such a name already is the site's, and stays.

    Raises:
        Failure: a link cannot be made.
    """
    for name in _missing():
        link = on_node(f"{PLACE}/{name}")
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"{FOLDER}/{name}")
        except OSError as error:
            raise Failure(f"{link} cannot be made: {error.strerror or error}") from None
        print(f"{link} is {FOLDER}/{name}")


def _missing() -> list[str]:
    return [name for name in COMMANDS if on_node(f"{FOLDER}/{name}").exists() and not _there(name)]


def _there(name: str) -> bool:
    link: Path = on_node(f"{PLACE}/{name}")
    return link.is_symlink() or link.exists()
