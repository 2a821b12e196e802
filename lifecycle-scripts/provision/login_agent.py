"""The agent of a login node: its settings, the service's token, its systemd unit.

The token is fetched once. The file with the service's address also says where the token came from: another
secret in the site file is another address file, and the token is fetched anew; and the agent itself looks
there when the service no longer takes its token.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.failures import Failure
from provision.files import is_so, on_node, read_text, write_whole
from provision.processes import must
from provision.secret import read_text_secret
from provision.services import is_active, reload_units, start
from provision.step import Context

UNIT = "hp-login-agent"
UNIT_FILE = f"/etc/systemd/system/{UNIT}.service"
SETTINGS = "/etc/hpctools/login-agent.yaml"
SERVICE = "/etc/hpctools/login-agent.env"
TOKEN = "/etc/hpctools/login-token"  # noqa: S105  where it is, not what it is
PROGRAM = "/opt/hpctools/bin/hp-login-agent"


def is_done(context: Context) -> bool:
    """Whether the agent runs with these files and has a token that root alone may read."""
    section = context.settings.section("login_agent")
    return not section or (
        all(is_so(on_node(path), text, 0o644) for path, text in _files(context, section).items())
        and _has_token()
        and is_active(UNIT)
    )


def do(context: Context) -> None:
    """Make it so: an agent that runs while its files change is stopped first, so that a kill shows.

    Raises:
        Failure: the program is not on the node, the token cannot be had, or the agent does not start.
    """
    section = context.settings.section("login_agent")
    if not on_node(PROGRAM).exists():
        raise Failure(
            f"there is no {PROGRAM}: put hpctools[login] into /opt/hpctools of the image (docs/login.md)",
            hopeless=True,
        )
    token = _token(section["token"])
    if is_active(UNIT):
        must(["systemctl", "stop", UNIT], limit=30)
    write_whole(on_node(TOKEN), f"{token}\n", 0o600)
    for path, text in _files(context, section).items():
        write_whole(on_node(path), text, 0o644)
    reload_units()
    start(UNIT)
    print(f"{UNIT} runs and tells {section['service']}")


def _files(context: Context, section: Mapping[str, Any]) -> dict[str, str]:
    """Path and text of what has no secret in it."""
    service = (
        "# Made by hpctools' lifecycle scripts.\n"
        f"HPCTOOLS_API={section['service']}\n"
        f"HPCTOOLS_API_TOKEN_FILE={TOKEN}\n"
        f"HPCTOOLS_API_TOKEN_SOURCE={_source(section['token'])}\n"
        # The settings are those of all nodes. An agent that knows its address by the site file prefers that.
        f"HPCTOOLS_LOGIN_ADDRESS={context.address}\n"
    )
    return {UNIT_FILE: str(section["unit"]), SETTINGS: str(section["settings"]), SERVICE: service}


def _source(place: Mapping[str, str]) -> str:
    return str(place.get("file") or place["aws_secret"])


def _has_token() -> bool:
    """A secret is not fetched again to compare."""
    try:
        found = on_node(TOKEN).stat()
    except OSError:
        return False
    return found.st_mode & 0o7777 == 0o600 and found.st_size > 1


def _token(place: Mapping[str, str]) -> str:
    found = _from_file(on_node(place["file"])) if "file" in place else read_text_secret(place["aws_secret"])
    token = found.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Failure(
            f"{_source(place)} is no token: it must be one word, as `hpctools-api token create` prints it",
            hopeless=True,
        )
    return token


def _from_file(path: Path) -> str:
    text = read_text(path, "token of the service")
    if path.stat().st_mode & 0o077:
        raise Failure(f"others may read the service's token in {path}: chmod 600 {path}", hopeless=True)
    return text
