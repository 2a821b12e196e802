"""What sshd itself says of its files: it reads a file of keys only where its sshd_config includes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provision.failures import Failure
from provision.files import on_node, write_whole
from provision.processes import call

CONFIG = "/etc/ssh/sshd_config"
_SECONDS = 30
# Without somebody to ask for, an sshd with Match blocks may say nothing.
_SHOW = ("sshd", "-T", "-C", "user=root,host=localhost,addr=127.0.0.1")


def unread(lines: Sequence[str]) -> tuple[list[str], str]:
    """Those of these lines (`HostKey PATH`, ...) by which sshd does not go; what it says where it refuses."""
    shown = call(_SHOW, limit=_SECONDS)
    if shown.code != 0:
        return list(lines), " ".join(shown.err.split()) or shown.last_words
    having = {_settled(line) for line in shown.out.splitlines()}
    return [line for line in lines if _settled(line) not in having], ""


def take_away(file: Path, text: str) -> None:
    """Have a file of ours go that sshd refuses, and would end at; not where it refuses the others, too."""
    file.unlink(missing_ok=True)
    if call(["sshd", "-t"], limit=_SECONDS).code != 0:
        write_whole(file, text, 0o644)


def not_read(file: Path, missing: Sequence[str], why: str) -> Failure:
    """What to say where sshd does not go by all lines of a file."""
    said = why or f"it does not go by `{missing[0]}`"
    mend = f"begin {on_node(CONFIG)} with `Include {file.parent}/*.conf`, above its first Match"
    return Failure(f"sshd does not read {file}: {said}; {mend} (or mend what sshd says)", hopeless=True)


def _settled(line: str) -> tuple[str, str]:
    """sshd prints the names of settings in small letters."""
    name, _, value = line.strip().partition(" ")
    return name.lower(), value.strip()
