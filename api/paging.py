"""Lists in pages: by the key of the last item, so that items that come or go in between move no others.

Cursors are opaque to clients: they carry that key, and a mark of what was asked for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query
from sqlalchemy import Select, tuple_
from sqlalchemy.orm import QueryableAttribute

from api.problems import ProblemError

MOST = 1000
DEFAULT = 100

T = TypeVar("T")
Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Page:
    """Which part of a list a client asks for.

    Attributes:
        limit: how many items at most.
        cursor: as a page before told it; None for the first page.
    """

    limit: int = DEFAULT
    cursor: str | None = None

    def after(self, listing: str, kinds: Sequence[type[str] | type[int]]) -> Key | None:
        """The key of the last item of the page before; None for the first page.

        Args:
            listing: what is listed: the path, every filter and the order.
            kinds: of what the key consists.

        Raises:
            ProblemError: 422, the cursor is none of this list's.
        """
        if self.cursor is None:
            return None
        key = _decode(self.cursor, listing)
        if key is None or [type(part) for part in key] != list(kinds):
            told = {"field": "query.cursor", "message": "not a cursor of this list"}
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "The cursor is not one that this list gave, with the same filters. Start without one.",
                errors=(told,),
            )
        return key

    def next(self, listing: str, found: Sequence[T], key: Callable[[T], Key]) -> tuple[list[T], str | None]:
        """This page's items and the cursor of the next page, None when this is the last.

        Args:
            found: in order, `limit + 1` at most: one more than the page tells that there is another.
        """
        items = list(found[: self.limit])
        more = len(found) > self.limit
        return items, _encode(key(items[-1]), listing) if more else None


async def get_page(
    limit: Annotated[int, Query(ge=1, le=MOST, description="Items at most.")] = DEFAULT,
    cursor: Annotated[
        str | None, Query(max_length=4096, description="`next` of the page before.", examples=[None])
    ] = None,
) -> Page:
    """The page that a request asks for."""
    return Page(limit, cursor)


Paged = Annotated[Page, Depends(get_page)]


def select_page(
    query: Select[Any],
    page: Page,
    listing: str,
    columns: Sequence[QueryableAttribute[Any]],
    kinds: Sequence[type[str] | type[int]],
    descending: bool = False,
) -> Select[Any]:
    """A query in a stable order, from where the page begins, with one row more than the page has.

    Args:
        columns: what it is ordered by; unique together and never NULL.
    """
    order = [column.desc() for column in columns] if descending else list(columns)
    key = page.after(listing, kinds)
    if key is not None:
        here, last = tuple_(*columns), tuple_(*key)
        query = query.where(here < last if descending else here > last)
    return query.order_by(*order).limit(page.limit + 1)


def cut(
    items: Iterable[T],
    page: Page,
    listing: str,
    key: Callable[[T], Key],
    kinds: Sequence[type[str] | type[int]],
) -> tuple[list[T], str | None]:
    """A page of a list in memory, by a unique key."""
    last = page.after(listing, kinds)
    found = sorted((item for item in items if last is None or key(item) > last), key=key)
    return page.next(listing, found[: page.limit + 1], key)


def every(read: Callable[[int | None], Sequence[T]], number: Callable[[T], int]) -> Iterator[T]:
    """All of a list whose newest come first, read part by part.

    Args:
        read: a part of it, of what is before an item; None for the newest. The last part is empty.
        number: of an item, for `read`.
    """
    before = None
    while found := read(before):
        yield from found
        before = number(found[-1])


def _encode(key: Key, listing: str) -> str:
    text = json.dumps([_mark(listing), *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str, listing: str) -> Key | None:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        mark, *key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        return None
    # SQLite holds 64 bits, and PostgreSQL's text no NUL.
    fits = all(
        part.isprintable() if isinstance(part, str) else abs(part) < 2**63 for part in key if _is(part)
    )
    return tuple(key) if mark == _mark(listing) and fits and all(map(_is, key)) else None


def _is(part: object) -> bool:
    return type(part) in (str, int)


def _mark(listing: str) -> str:
    return hashlib.sha256(listing.encode()).hexdigest()[:12]
