"""What must never lie in a bucket that every node reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hpctools.errors import HpctoolsError

_SECRETS = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "the password of the database": re.compile(rb"^\s*StoragePass\s*=\s*\S", re.IGNORECASE | re.MULTILINE),
    "an AWS access key": re.compile(rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a password": re.compile(
        rb'"[A-Za-z_]*(?:password|passwd|secret_key|authtok)[A-Za-z_]*"\s*:\s*"[^"]', re.IGNORECASE
    ),
    "the password of the directory": re.compile(rb"^\s*ldap_default_authtok\s*=\s*[^\s{%@]", re.MULTILINE),
}
_CODE = (".py", ".sh", ".md")


def refuse_secrets(files: Mapping[str, bytes]) -> None:
    """Refuse files that hold a secret.

    Args:
        files: contents by path.

    Raises:
        HpctoolsError: one does; the message names the file and the line, and not the secret.
    """
    found = [
        f"{path}:{line}: {what}" for path, content in files.items() for line, what in _found(path, content)
    ]
    if found:
        raise HpctoolsError(
            "a bundle goes to a bucket that every node reads, and this has a secret in it: "
            + "; ".join(found),
            "keep it in AWS Secrets Manager, and name it in the site file",
        )


def _found(path: str, content: bytes) -> Iterator[tuple[int, str]]:
    if path.endswith(_CODE) or path.startswith("steps/"):
        return  # programs speak of such things
    for what, pattern in _SECRETS.items():
        for match in pattern.finditer(content):
            yield content.count(b"\n", 0, match.start()) + 1, what
