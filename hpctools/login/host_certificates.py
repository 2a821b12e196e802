"""Certificates of host keys, as ssh-keygen shows them: whose they are, and for how long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hpctools.errors import HpctoolsError
from hpctools.slurm.run import run

_SECONDS = 60.0
_KEY = re.compile(r"^ *Public key: \S+ (?P<key>SHA256:\S+)$", re.MULTILINE)
_VALID = re.compile(r"^ *Valid: (?:forever|(?:from \S+ to|before) (?P<until>\S+)|after \S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Certificate:
    """What an authority says of a host key.

    Attributes:
        name: its file's.
        key: fingerprint of the key.
        until: when it ends, local time; None: never.
    """

    name: str
    key: str
    until: datetime | None

    def days_left(self, now: datetime) -> float | None:
        """Days until it ends, negative afterwards; None: it does not."""
        return None if self.until is None else (self.until - now).total_seconds() / 86_400


def read_certificate(path: Path) -> Certificate:
    """Read one.

    Raises:
        HpctoolsError: it is none, or ssh-keygen shows it in words that are not known.
    """
    shown = run(["ssh-keygen", "-L", "-f", str(path)], timeout=_SECONDS).stdout
    key, valid = _KEY.search(shown), _VALID.search(shown)
    if key is None or valid is None:
        raise HpctoolsError(
            f"{path} is no certificate of a host key", "make it anew: hpctools login host-keys sign"
        )
    until = valid["until"]
    return Certificate(path.name, key["key"], datetime.fromisoformat(until) if until else None)
