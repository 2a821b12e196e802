"""Names that come from the other side, or go there: checked before a file or a program meets them."""

from __future__ import annotations

import re
import secrets
from pathlib import PurePosixPath

from hpctools.errors import UsageError

ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}-[0-9a-f]{12}")
RECORD_FOLDER = ".hpctools"
_HOST = re.compile(r"(?:[A-Za-z0-9_]|::[A-Fa-f0-9])[A-Za-z0-9_.:%-]{0,252}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\$-]{0,63}")
_WITH_PORT = re.compile(r"(?:\[([^][]+)\]|([^][:]+)):([0-9]{1,9})")
_LONGEST_NAME = 255


def new_id(name: str) -> str:
    """A submission's own id: its job's name where that can be part of one, and 48 random bits."""
    word = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:40].strip("-.")
    return f"{word or 'job'}-{secrets.token_hex(6)}"


def is_id(word: str) -> bool:
    """Whether a word could be a submission's id."""
    return ID.fullmatch(word) is not None


def is_host(word: str) -> bool:
    """Whether a word can be given to a program as a host: no option, nothing that a shell knows."""
    return _HOST.fullmatch(word) is not None


def host_and_port(word: str) -> tuple[str, int]:
    """A host and the port behind it (`gate:2222`, `[2001:db8::1]:2222`); 0: there is none.

    Raises:
        UsageError: what stands behind it is a number, and no port.
    """
    found = _WITH_PORT.fullmatch(word)
    if found is None:
        return word.removeprefix("[").removesuffix("]"), 0
    if not 0 < (port := int(found[3])) < 65536:
        raise UsageError(f"{word!r} names port {port}", "a port is a number from 1 to 65535")
    return found[1] or found[2], port


def is_user(word: str) -> bool:
    """Whether a word can be given to a program as a user's name."""
    return _USER.fullmatch(word) is not None


def inner_path(text: str) -> PurePosixPath:
    """A file's path below a folder.

    Raises:
        UsageError: it leads out of the folder, into the record's folder, or is none.
    """
    parts = text.split("/")
    if "\0" in text or any(part in ("", ".", "..") or _too_long(part) for part in parts):
        raise UsageError(f"{text!r} is no path below the run folder", "name files without .. and from no /")
    if parts[0] == RECORD_FOLDER:
        raise UsageError(f"{text!r} lies in {RECORD_FOLDER}, which is hpctools' own", "give it another name")
    return PurePosixPath(*parts)


def _too_long(part: str) -> bool:
    return len(part.encode("utf-8", "surrogateescape")) > _LONGEST_NAME


def shown(text: str) -> str:
    """A name as it may be printed on a terminal: whatever is no plain character is escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def shown_lines(words: str) -> str:
    """Lines as they may be printed on a terminal, without those that are empty."""
    return "\n".join(shown(line) for line in words.splitlines() if line.strip())
