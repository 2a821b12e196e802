"""What stands around every page: where one is, where one may go, which days are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from api.auth.principal import Principal
from api.pages.periods import Picker, picker, spell_period
from hpctools.budget.allowance import Period
from hpctools.budget.tree import Account, BudgetSite


@dataclass(frozen=True)
class Link:
    """Somewhere to go.

    Attributes:
        current: one is there.
    """

    label: str
    href: str
    current: bool = False


@dataclass(frozen=True)
class Place:
    """An entry of the navigation.

    Attributes:
        dated: it shows the days that were chosen elsewhere.
        open_to: who sees it.
    """

    label: str
    path: str
    dated: bool = False
    open_to: Callable[[Principal], bool] = lambda visitor: True


NAVIGATION = (
    Place("Overview", "/", dated=True),
    Place("Accounts", "/accounts", dated=True),
    Place("Alerts", "/alerts"),
    Place("Reconciliation", "/reconciliation", open_to=lambda visitor: visitor.is_admin),
    Place("Enforcement", "/enforcement"),
    Place("Login nodes", "/login-nodes"),
)


@dataclass(frozen=True)
class Frame:
    """What `page.html` needs.

    Attributes:
        visitor: whose session it is.
        trail: from the top to here; the last one is the page itself.
        picker: None for a page that has no days.
        period: for the addresses of other pages: `?period=2026-11`, or empty.
        keep: what else the address has and another period of the same page keeps.
    """

    cluster: str
    visitor: str
    navigation: tuple[Link, ...]
    trail: tuple[Link, ...]
    picker: Picker | None
    period: str
    keep: tuple[tuple[str, str], ...] = ()


def frame(
    site: BudgetSite,
    visitor: Principal,
    here: str,
    trail: Iterable[Link] = (),
    period: Period | None = None,
    today: date | None = None,
    keep: Mapping[str, str] | None = None,
) -> Frame:
    """The frame of a page.

    Args:
        here: the path of the page's entry in the navigation; empty for none.
        period: which days it shows; None for a page without.
        today: with it other days can be chosen.
        keep: parameters that another choice of days keeps.
    """
    dated = f"?period={spell_period(period)}" if period else ""
    return Frame(
        cluster=site.cluster,
        visitor=visitor.name.removeprefix("oidc:").removeprefix("sub:"),
        navigation=tuple(
            Link(place.label, place.path + (dated if place.dated else ""), place.path == here)
            for place in NAVIGATION
            if place.open_to(visitor)
        ),
        trail=tuple(trail),
        picker=picker(period, today) if period and today else None,
        period=dated,
        keep=tuple((name, value) for name, value in (keep or {}).items() if value),
    )


def title_of(account: Account) -> str:
    """What people call an account."""
    return "Whole site" if account.level == "site" else account.title or account.name


def trail_to(
    site: BudgetSite, visitor: Principal, account: Account, period: Period | None, *rest: Link
) -> tuple[Link, ...]:
    """The accounts above one that the visitor may see, the account, and what comes after it."""
    dated = f"?period={spell_period(period)}" if period else ""
    names = [name for name in reversed(site.lineage(account.name)) if visitor.may_see(site, name)]
    links = [Link(title_of(site.by_name[name]), f"/accounts/{name}{dated}") for name in names]
    return (*links, *rest)
