"""The path under which a proxy shows the service: routes have it taken off, links have it before them.

A server that is told of it puts it before the path of each request (ASGI's `root_path`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

ROOT: ContextVar[str] = ContextVar("hpctools_root", default="")
"""Of the request that is being answered; empty for none."""


def root_of(scope: Mapping[str, Any]) -> str:
    """The path under which a request was sent; empty for none."""
    return str(scope.get("root_path", "")).rstrip("/")


def route_of(scope: Mapping[str, Any], path: str | None = None) -> str:
    """A path as routes have it.

    Args:
        path: of the request itself when left out.
    """
    root, whole = root_of(scope), str(scope.get("path", "")) if path is None else path
    return whole.removeprefix(root) if root and whole.startswith(f"{root}/") else whole


def linked(address: str) -> str:
    """An address for a page that is made now; one that is relative already stays as it is."""
    return f"{ROOT.get()}{address}" if address.startswith("/") else address
