"""What sshd itself says of its files: it reads a file of keys only where its sshd_config includes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from provision.failures import Failure
from provision.files import on_node, write_whole
from provision.processes import TIMED_OUT, Done, call

CONFIG = "/etc/ssh/sshd_config"
_RUN_FOLDER = "/run/sshd"
_SECONDS = 30
# Without somebody to ask for, an sshd with Match blocks may say nothing.
SHOW = ("-T", "-C", "user=root,host=localhost,addr=127.0.0.1")


@dataclass(frozen=True)
class Read:
    """What sshd says of lines (`HostKey PATH`, ...).

    Attributes:
        missing: those by which it does not go.
        why: what is in the way where it does not say by which.
        refused: it refuses its files; else, with a `why`, it could not be asked.
    """

    missing: tuple[str, ...]
    why: str = ""
    refused: bool = False


def ask(*words: str) -> Done:
    """Ask sshd something of its files.

    No sshd of Debian's says anything without a folder that systemd makes for the first one of a machine: with
    ssh.socket, or while an image is made, there has been none.

    Raises:
        Failure: there is no sshd.
    """
    with suppress(FileExistsError):
        on_node(_RUN_FOLDER).mkdir(mode=0o755, parents=True)
    return call(["sshd", *words], limit=_SECONDS)


def read(lines: Sequence[str]) -> Read:
    """By which of these lines sshd does not go."""
    shown = ask(*SHOW)
    if shown.code != 0:
        refused = shown.code > 0 and shown.code != TIMED_OUT
        return Read(tuple(lines), " ".join(shown.err.split()) or shown.last_words, refused)
    having = {_settled(line) for line in shown.out.splitlines()}
    return Read(tuple(line for line in lines if _settled(line) not in having))


def take_away(file: Path, text: str) -> None:
    """Have a file of ours go that sshd refuses, and would end at.

    It stays where sshd refuses the others, too, or could not be asked of them.
    """
    stays = True
    file.unlink(missing_ok=True)
    try:
        with suppress(Failure):
            stays = ask("-t").code != 0
    finally:
        if stays:
            write_whole(file, text, 0o644)


def not_read(file: Path, found: Read) -> Failure:
    """What to say where sshd does not go by all lines of a file."""
    if found.why and not found.refused:
        return Failure(f"sshd could not be asked whether it reads {file}: {found.why}")
    said = found.why or f"it does not go by `{found.missing[0]}`"
    mend = "mend what sshd says"
    if not found.why or "Match block" in said:
        mend = f"begin {on_node(CONFIG)} with `Include {file.parent}/*.conf`, above its first Match"
    return Failure(f"sshd does not read {file}: {said}; {mend}", hopeless=True)


def _settled(line: str) -> tuple[str, str]:
    """sshd prints the names of settings in small letters."""
    name, _, value = line.strip().partition(" ")
    return name.lower(), value.strip()
