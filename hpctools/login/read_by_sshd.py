"""What sshd itself says of its files: it reads a file of keys only where its sshd_config includes it.

Asked before it is told to read them again: an sshd that refuses its files ends at a reload.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from hpctools.errors import HpctoolsError
from hpctools.slurm.run import run

_SECONDS = 30.0
_PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
# Without somebody to ask for, an sshd with Match blocks may say nothing.
_SHOW = ("-T", "-C", "user=root,host=localhost,addr=127.0.0.1")


def unread(config: Path, lines: Sequence[str]) -> tuple[str, ...]:
    """Those of these lines (`HostKey PATH`, ...) by which sshd does not go.

    Args:
        config: its sshd_config.

    Raises:
        CommandError: it refuses its files, or there is no sshd.
    """
    said = run([_sshd(), *_SHOW, "-f", str(config)], timeout=_SECONDS).stdout
    having = {_settled(line) for line in said.splitlines()}
    return tuple(line for line in lines if _settled(line) not in having)


def refuses(config: Path) -> bool:
    """Whether sshd would not start with its files as they are."""
    return run([_sshd(), "-t", "-f", str(config)], timeout=_SECONDS, check=False).code != 0


def not_read(config: Path, file: Path, missing: Sequence[str], why: str = "") -> HpctoolsError:
    """What to say where sshd does not go by all lines of a file.

    Args:
        why: what sshd said, where it refuses its files.
    """
    said = " ".join(why.split()) or f"it does not go by `{missing[0]}`"
    return HpctoolsError(
        f"sshd of this node does not read {file}: {said}",
        f"begin {config} with `Include {file.parent}/*.conf`, above its first Match, or mend what sshd "
        "says, then install again; until then this node is noted down as one without these keys",
    )


def _sshd() -> str:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{_PLACES}") or "sshd"


def _settled(line: str) -> tuple[str, str]:
    """sshd prints the names of settings in small letters."""
    name, _, value = line.strip().partition(" ")
    return name.lower(), value.strip()
