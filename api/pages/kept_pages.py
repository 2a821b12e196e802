"""Pages that need not be made again: what they tell follows from the state of the store and the site file."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from api.auth.identify import Context
from api.rooted import ROOT
from api.services.kept import Kept, KeptByStore
from api.services.store_state import money_state
from hpctools.budget.month import day_of
from hpctools.budget.tree import BudgetSite

_PAGES = 500

_kept: KeptByStore[Kept[str]] = KeptByStore(lambda: Kept(_PAGES))


def kept_page(context: Context, site: BudgetSite, asked: Hashable, make: Callable[[], str]) -> str:
    """A page as it was made before, if nothing has changed since that it could tell.

    Args:
        site: that it is made of; somebody may have changed its budgets since it was read.
        asked: all that it depends on besides: who asks for what.
    """
    budgets = tuple(account.budget for account in site.accounts)
    today, state = day_of(context.clock()), money_state(context.engine)
    key = (asked, ROOT.get(), _Same(site.owners), budgets, today, state)
    return _kept.of(context.engine).get(key, make)


@dataclass(frozen=True, eq=False)
class _Same:
    """Equal to itself only, and to what is about the same object; a site file read anew has others."""

    of: object

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of
