"""QoS that `settings` of a site speak of, in sacctmgr's words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.conf.accounts import AccountTree, Settings
from hpctools.conf.vocabulary import names_of

_LISTS = ("QOS", "DefaultQOS", "Preempt")


def stated_qos(tree: AccountTree) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Place, key and the names there, of tiers, accounts and people; tiers or not."""
    for place, settings in _places(tree):
        for key in _LISTS:
            yield place, key, frozenset(name.lstrip("+-") for name in names_of(settings.get(key, "")))


def _places(tree: AccountTree) -> Iterator[tuple[str, Settings]]:
    for qos in tree.qos:
        yield f"tier {qos.name}", qos.settings
    for account in tree.accounts:
        yield f"account {account.name}", account.settings
    for row in tree.associations:
        yield f"{row.user} in account {row.account}", row.settings
