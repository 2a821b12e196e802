"""Pages that need not be made again: what they tell follows from the state of the store and the site file."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from api.auth.identify import Context
from api.services.kept import Kept, KeptByStore
from api.services.store_state import money_state
from hpctools.budget.month import day_of

_PAGES = 500

_kept: KeptByStore[Kept[str]] = KeptByStore(lambda: Kept(_PAGES))


def kept_page(context: Context, asked: Hashable, make: Callable[[], str]) -> str:
    """A page as it was made before, if nothing has changed since that it could tell.

    Args:
        asked: all that it depends on besides: who asks for what.
    """
    site = _Same(context.site_file.current())
    key = (asked, site, day_of(context.clock()), money_state(context.engine))
    return _kept.of(context.engine).get(key, make)


@dataclass(frozen=True, eq=False)
class _Same:
    """Equal to itself only, and to what is about the same object; a changed site file is another one."""

    of: object

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of
