"""What sshd of a login node is told of those who connect and do not log in: a file beside its sshd_config.

What was there before lies in the node's state from before the file is written until sshd was reloaded: a run
that was killed in between is finished by the next one, and what sshd refuses is put back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from provision.failures import Failure
from provision.files import STATE, is_so, on_node, read_json, read_text, write_whole
from provision.read_by_sshd import CONFIG, SHOW, ask
from provision.services import reload_sshd
from provision.step import Context

NOTE = f"{STATE}/login-sshd-before.json"
_INCLUDE = re.compile(r"^\s*Include\s.*sshd_config\.d/", re.MULTILINE | re.IGNORECASE)


def is_done(context: Context) -> bool:
    """Whether the file is there as it should be where sshd reads it, and sshd was reloaded since."""
    section = context.settings.section("login_sshd")
    return not section or (
        is_so(on_node(section["path"]), section["text"], 0o644) and _is_read() and not on_node(NOTE).exists()
    )


def do(context: Context) -> None:
    """Write it, have sshd judge it, and reload sshd; sessions go on.

    Raises:
        Failure: sshd would not read the file; or it refuses its files with it, and what was there is back;
            or it does not reload.
    """
    section = context.settings.section("login_sshd")
    path, note = on_node(section["path"]), on_node(NOTE)
    if not _is_read():
        line = f"Include {path.parent}/*.conf"
        raise Failure(f"sshd would not read {path}: begin {on_node(CONFIG)} with `{line}`", hopeless=True)
    if not note.exists():
        write_whole(note, json.dumps(_found(path)), 0o600)
    write_whole(path, section["text"], 0o644)
    judged = ask("-t")
    if judged.code != 0:
        _put_back(path, note)
        words = " ".join(judged.err.split())
        raise Failure(f"sshd refuses its files with {path}, which is as before: {words}", hopeless=True)
    reload_sshd()
    note.unlink()
    print(f"sshd goes by {path}")
    _tell_of_others(section["text"])


def _is_read() -> bool:
    """Whether sshd_config includes such files, as Debian's does."""
    return bool(_INCLUDE.search(read_text(on_node(CONFIG), "configuration of sshd")))


def _found(path: Path) -> dict[str, object]:
    """What is there; nothing where there is no file."""
    try:
        return {"text": path.read_text(encoding="utf-8"), "mode": path.stat().st_mode & 0o7777}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path} cannot be read: {error}; move it away", hopeless=True) from None


def _put_back(path: Path, note: Path) -> None:
    before = read_json(note, "note of what sshd was told before")
    if isinstance(before, dict) and "text" in before:
        write_whole(path, str(before["text"]), int(before["mode"]))
    else:
        path.unlink(missing_ok=True)
    note.unlink()


def _tell_of_others(text: str) -> None:
    """Say what another file settles: sshd takes the first word of a setting, of MaxStartups the last."""
    shown = ask(*SHOW)
    found = _settings(shown.out) if shown.code == 0 else {}
    for name, value in _settings(text).items():
        if found.get(name, value) != value:
            print(f"another file tells sshd {name} {found[name]}, which counts instead of {value}")


def _settings(text: str) -> Mapping[str, str]:
    """sshd's settings, one a line, as `sshd -T` prints them."""
    lines = (line.strip().partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name.lower(): value.strip() for name, _, value in lines if name}
