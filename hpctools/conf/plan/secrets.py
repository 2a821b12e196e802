"""Passwords are not shown: not in a plan, not in a diff, not in JSON."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"(?im)^(\s*(?:StoragePass|AccountingStoragePass|JobCompPass|ArchivePass)\s*=\s*)(\"[^\"]*\"|[^\s#]*)"
)


def masked(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Mask the secrets of two texts; one that differs is called a new one."""
    old = _found(before)
    return _mask(before, {}, "(secret)"), _mask(after, old, "(new secret)")


def _found(text: str | None) -> dict[str, str]:
    return {key.strip().lower(): value for key, value in _SECRET.findall(text or "")}


def _mask(text: str | None, old: dict[str, str], changed: str) -> str | None:
    if text is None:
        return None

    def hide(match: re.Match[str]) -> str:
        before = old.get(match.group(1).strip().lower())
        return match.group(1) + (changed if before is not None and before != match.group(2) else "(secret)")

    return _SECRET.sub(hide, text)
