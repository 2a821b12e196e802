"""Pages that need not be made again: what they tell follows from the state of the store and the site file."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from api.auth.identify import Context
from api.rooted import ROOT
from api.services.kept import Kept, KeptByStore, Same
from api.services.store_state import money_state
from hpctools.budget.month import day_of
from hpctools.budget.tree import BudgetSite

_PAGES = 1000

_kept: KeptByStore[Kept[bytes]] = KeptByStore(lambda: Kept(_PAGES))


def kept_page(context: Context, site: BudgetSite, asked: Hashable, make: Callable[[], str]) -> bytes:
    """A page as it was made before, in UTF-8, if nothing has changed since that it could tell.

    Args:
        site: that it is made of, as `with_budgets` gives it: another object for other budgets.
        asked: all that it depends on besides: who asks for what.
    """
    today, state = day_of(context.clock()), money_state(context.engine)
    key = (asked, ROOT.get(), Same(site), today, state)
    return _kept.of(context.engine).get(key, lambda: make().encode())
