"""Fixtures of the apply tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conf.apply.stand_in import StandIn


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder where waiting for the disk costs nothing, for hundreds of applies."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def cluster(tmp_path: Path) -> StandIn:
    """A cluster whose files were written by hand, with one person."""
    found = StandIn(tmp_path)
    found.start("old", "eva")
    return found
