"""Nodes in folders."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lifecycle.node import WORKER, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A worker."""
    return Node(tmp_path / "node", WORKER)


@pytest.fixture
def make_node(tmp_path: Path) -> Callable[[str], Node]:
    """Nodes by their address."""
    return lambda address: Node(tmp_path / f"node-{address}", address)
