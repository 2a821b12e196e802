"""A disk that fills up."""

from __future__ import annotations

from pathlib import Path


def fill(path: Path) -> None:
    """Write to a file until it may not grow any more, or its disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return
