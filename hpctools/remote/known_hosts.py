"""OpenSSH's known_hosts files: who may claim to be which host. Pure; sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".

Paramiko reads such files, but neither `@cert-authority` nor `@revoked`, and not every negated pattern.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Literal

Marker = Literal["", "@cert-authority", "@revoked"]
_MARKERS = {"@cert-authority", "@revoked"}


@dataclass(frozen=True)
class KnownHost:
    """A line of a known_hosts file.

    Attributes:
        marker: `@cert-authority`: the key signs hosts' keys; `@revoked`: nobody may have it.
        names: the patterns as written, or one hashed name.
        kind: the key's type.
        key: the key, as SSH sends it.
        place: file and line.
    """

    marker: str
    names: str
    kind: str
    key: bytes
    place: str

    def names_host(self, name: str) -> bool:
        """Whether the line is about a host of that name."""
        if self.names.startswith("|"):
            return _is_hash_of(self.names, name)
        return matches(self.names, name)


@dataclass(frozen=True)
class KnownHosts:
    """All lines of a person's and of the machine's known_hosts files."""

    lines: tuple[KnownHost, ...]

    def keys(self, names: Sequence[str], marker: Marker = "") -> list[KnownHost]:
        """The lines with that marker about a host that has any of these names."""
        return [
            line
            for line in self.lines
            if line.marker == marker and any(line.names_host(name) for name in names)
        ]

    def is_revoked(self, key: bytes, names: Sequence[str]) -> KnownHost | None:
        """The line that revokes a key for the host, or None."""
        found = self.keys(names, "@revoked")
        return next((line for line in found if line.key == key), None)


def known_name(host: str, port: int) -> str:
    """A host as known_hosts names it: with its port where that is not 22."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def read(texts: Iterable[tuple[str, str]]) -> KnownHosts:
    """Read files; lines that cannot be understood are left out, as ssh does.

    Args:
        texts: name and content of each file.
    """
    return KnownHosts(tuple(line for name, text in texts for line in _lines(name, text)))


def _lines(name: str, text: str) -> Iterator[KnownHost]:
    for number, line in enumerate(text.splitlines(), start=1):
        found = _read_line(line, f"{name}:{number}")
        if found:
            yield found


def _read_line(line: str, place: str) -> KnownHost | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3 or (marker and marker not in _MARKERS):
        return None
    try:
        key = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return KnownHost(marker, words[0], words[1], key, place) if _type_of(key) == words[1] else None


def _type_of(key: bytes) -> str:
    length = int.from_bytes(key[:4], "big")
    return key[4 : 4 + length].decode("ascii", "replace")


def matches(patterns: str, name: str) -> bool:
    """Whether a name fits a list of patterns: `*`, `?`, and `!` before one that must not fit."""
    fits = False
    for pattern in patterns.lower().split(","):
        negated = pattern.startswith("!")
        if _fits(pattern.removeprefix("!"), name.lower()):
            if negated:
                return False
            fits = True
    return fits


def _fits(pattern: str, name: str) -> bool:
    # In known_hosts [ and ] are themselves: they enclose a host that has a port.
    return re.match(translate(pattern.replace("[", "[[]")), name) is not None


def _is_hash_of(hashed: str, name: str) -> bool:
    parts = hashed.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return False
    try:
        salt, wanted = base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.lower().encode(), hashlib.sha1).digest(), wanted)


def hashed(name: str) -> str:
    """A host's name as `HashKnownHosts yes` keeps it."""
    salt = os.urandom(20)
    digest = hmac.new(salt, name.lower().encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def line(names: str, kind: str, key: bytes, marker: Marker = "") -> str:
    """A line of a known_hosts file."""
    words = (marker, names, kind, base64.b64encode(key).decode())
    return " ".join(word for word in words if word) + "\n"


def fingerprint(key: bytes) -> str:
    """What people compare: `SHA256:...`, as ssh-keygen -l prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
