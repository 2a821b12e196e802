"""systemd's services."""

from __future__ import annotations

from provision.failures import Failure
from provision.files import on_node, write_whole
from provision.processes import call, must

START_SECONDS = 90.0


def is_active(unit: str) -> bool:
    """Whether a service runs."""
    return call(["systemctl", "is-active", "--quiet", unit], limit=10).code == 0


def start(unit: str, *, anew: bool = True) -> None:
    """Have a service run now and after a reboot.

    Args:
        unit: its name.
        anew: restart it where it runs already.

    Raises:
        Failure: it does not start.
    """
    must(["systemctl", "enable", unit], limit=30)
    must(["systemctl", "restart" if anew else "start", unit], limit=START_SECONDS)


def reload_sshd() -> None:
    """Have sshd read its files again; sessions go on, since this reaches new connections only.

    Raises:
        Failure: it does not.
    """
    for unit in ("ssh", "sshd"):
        if call(["systemctl", "reload", unit], limit=30).code == 0:
            return
    if is_active("ssh.socket") and not is_active("ssh"):
        return  # it starts with the next connection, and reads them then
    raise Failure("neither ssh nor sshd reloads: it goes on with what it read before")


def drop_in(unit: str, text: str) -> bool:
    """Add to a service's unit; return whether that changed anything."""
    changed = write_whole(on_node(drop_in_path(unit)), text, 0o644)
    if changed:
        reload_units()
    return changed


def reload_units() -> None:
    """Have systemd read unit files again."""
    must(["systemctl", "daemon-reload"], limit=30)


def drop_in_path(unit: str) -> str:
    """Where our addition to a unit is."""
    return f"/etc/systemd/system/{unit}.service.d/hpctools.conf"
