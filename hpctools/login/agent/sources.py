"""Where sessions came from: what our PAM session limit, logind and utmp wrote down."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hpctools.errors import CommandError, CommandTimeout
from hpctools.login.agent.pausing import Pause
from hpctools.slurm.run import run

CLAIMS = Path("/run/hpctools-sessions")
UTMP = Path("/run/utmp")
_SECONDS = 5.0

# utmp(5) on Linux: type, pid, line, id, user, host, exit status, session, time, address, reserve.
_RECORD = struct.Struct("h2xi32s4s32s256s2h3i4i20s")
_USER_PROCESS = 7


class Sources:
    """Who knows where people came from.

    Args:
        monotonic: seconds, never going back.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, claims: Path = CLAIMS, utmp: Path = UTMP
    ) -> None:
        self._monotonic, self._claims, self._utmp = monotonic, claims, utmp
        self._pause = Pause("logind", "claims and utmp tell where people come from")

    def read(self) -> Mapping[str, str]:
        """Hosts by PID-START (claims), by pid (logind) and by terminal (utmp)."""
        found = dict(_of_utmp(self._utmp))
        found.update(self._of_logind())
        found.update(_of_claims(self._claims))
        return found

    def _of_logind(self) -> Mapping[str, str]:
        if self._pause.lasts(self._monotonic()):
            return {}
        try:
            found = _of_logind()
        except CommandTimeout as error:
            self._pause.hung(self._monotonic(), error)
            return {}
        except CommandError:
            return {}
        self._pause.answered()
        return found


def _of_claims(folder: Path) -> Iterator[tuple[str, str]]:
    for own in list(folder.glob("[0-9]*")):
        claims: list[Path] = []
        with suppress(OSError):  # PAM removes the folders of people who have left
            claims = list(own.glob("[0-9]*-[0-9]*"))
        for path in claims:
            with suppress(OSError, UnicodeDecodeError):
                source = path.read_text(encoding="utf-8").strip("\n").partition("\t")[2]
                if source:
                    yield path.name, source


def _of_utmp(path: Path) -> Iterator[tuple[str, str]]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    for place in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
        kind, _pid, line, _id, _user, host, *_ = _RECORD.unpack_from(data, place)
        if kind == _USER_PROCESS and host.rstrip(b"\0"):
            yield _text(line), _text(host)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _of_logind() -> Mapping[str, str]:
    listed = run(["loginctl", "list-sessions", "--no-legend", "--no-pager"], timeout=_SECONDS).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.split()]
    if not names:
        return {}
    shown = run(["loginctl", "show-session", *names, "-p", "Leader", "-p", "RemoteHost"], timeout=_SECONDS)
    return parse_logind(shown.stdout)


def parse_logind(text: str) -> Mapping[str, str]:
    """Remote hosts by leader from `loginctl show-session`, whose blocks are divided by empty lines."""
    found = {}
    for block in text.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        if values.get("Leader", "0") != "0" and values.get("RemoteHost"):
            found[values["Leader"]] = values["RemoteHost"]
    return found
