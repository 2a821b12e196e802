"""Sessions as the service lists them, page by page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from hpctools.budget.service import Service


def all_sessions(here: Service, **only: str | None) -> list[dict[str, Any]]:
    """The sessions of all pages.

    Args:
        only: `user` and `node`, where not None.

    Raises:
        HpctoolsError: the service refuses or does not answer.
    """
    words = [f"{key}={quote(value, safe='')}" for key, value in only.items() if value is not None]
    found: list[dict[str, Any]] = []
    cursors: list[str] = []
    while True:
        asked = [*words, *(f"cursor={quote(cursor, safe='')}" for cursor in cursors[-1:]), "limit=1000"]
        page = here.ask("GET", path := f"/v1/login/sessions?{'&'.join(asked)}")
        found += page["sessions"]
        if not page["next"]:
            return found
        if page["next"] in cursors:
            raise here.foreign(path, "with a page that it has answered before")
        cursors.append(page["next"])
