"""What sshd itself says of its files: it reads a file of keys only where its sshd_config includes it.

Asked before it is told to read them again: an sshd that refuses its files ends at a reload.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hpctools.errors import CommandError, HpctoolsError
from hpctools.slurm.run import Completed, run

_RUN_FOLDER = Path("/run/sshd")
"""No sshd of Debian's says anything without it, and systemd makes it for the first one of a machine: with
ssh.socket, or while an image is made, there has been none."""
_SECONDS = 30.0
_PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
# Without somebody to ask for, an sshd with Match blocks may say nothing.
_SHOW = ("-T", "-C", "user=root,host=localhost,addr=127.0.0.1")


def unread(config: Path, lines: Sequence[str]) -> tuple[str, ...]:
    """Those of these lines (`HostKey PATH`, ...) by which sshd does not go.

    Args:
        config: its sshd_config.

    Raises:
        CommandError: it refuses its files (`has_judged`), or could not be asked.
    """
    said = _ask(config, *_SHOW).stdout
    having = {_settled(line) for line in said.splitlines()}
    return tuple(line for line in lines if _settled(line) not in having)


def refuses(config: Path) -> bool:
    """Whether sshd would not start with its files as they are.

    Raises:
        CommandError: it could not be asked.
    """
    try:
        _ask(config, "-t")
    except CommandError as error:
        if not has_judged(error):
            raise
        return True
    return False


def reload() -> None:
    """Have systemd's sshd read its files again; sessions go on.

    Raises:
        HpctoolsError: it does not.
    """
    for unit in ("ssh", "sshd"):
        if _systemctl("reload", unit):
            return
    if _systemctl("is-active", "ssh.socket") and not _systemctl("is-active", "ssh"):
        return  # it starts with the next connection, and reads them then
    raise HpctoolsError(
        "neither ssh nor sshd was reloaded by systemctl: sshd goes on with what it read before, and this "
        "node is noted down as one without these keys",
        "reload sshd, then the same again with --reloaded",
    )


def _systemctl(*words: str) -> bool:
    try:
        run(["systemctl", *words], timeout=_SECONDS)
    except CommandError:
        return False
    return True


def has_judged(error: CommandError) -> bool:
    """Whether sshd itself ended so: else there is none, it took too long, or somebody ended it."""
    return error.code is not None and error.code > 0


def not_read(
    config: Path, file: Path, missing: Sequence[str], error: CommandError | None = None
) -> HpctoolsError:
    """What to say where sshd does not go by all lines of a file.

    Args:
        error: why it does not say by which; None where it did.
    """
    why = "" if error is None else error.stderr_tail or error.message
    said = " ".join(why.split()) or f"it does not go by `{missing[0]}`"
    mend = "mend what sshd says"
    if error is None or "Match block" in said:
        mend = f"begin {config} with `Include {file.parent}/*.conf`, above its first Match"
    elif not has_judged(error):
        mend = "see that sshd can be started here"
    return HpctoolsError(
        f"sshd of this node does not read {file}: {said}"
        if error is None or has_judged(error)
        else f"sshd of this node could not be asked whether it reads {file}: {said}",
        f"{mend}, then install again; until then this node is noted down as one without these keys",
    )


def _ask(config: Path, *words: str) -> Completed:
    with suppress(OSError):  # it is there, or we are not root: sshd says so then
        _RUN_FOLDER.mkdir(mode=0o755)
    return run([_sshd(), *words, "-f", str(config)], timeout=_SECONDS)


def _sshd() -> str:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{_PLACES}") or "sshd"


def _settled(line: str) -> tuple[str, str]:
    """sshd prints the names of settings in small letters."""
    name, _, value = line.strip().partition(" ")
    return name.lower(), value.strip()
