"""QoS that `settings` of a site name and that there are not: sacctmgr refuses them amid an apply. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.conf.accounts import AccountTree, Settings
from hpctools.conf.vocabulary import names_of

_LISTS = ("QOS", "DefaultQOS", "Preempt")


def unknown_qos(wanted: AccountTree, live: AccountTree) -> Iterator[str]:
    """A line for each place that names a QoS which is neither a tier nor in slurmdbd."""
    known = {"normal", *(qos.name for tree in (wanted, live) for qos in tree.qos)}
    for place, settings in _places(wanted):
        for key in _LISTS:
            unknown = sorted({name.lstrip("+-") for name in names_of(settings.get(key, ""))} - known)
            if unknown:
                told = f"{place}: {key} names {', '.join(unknown)}"
                yield (
                    f"{told}, and there is neither such a tier nor such a QoS in slurmdbd: sacctmgr refuses "
                    "it, and an apply is taken back; correct `settings`, or add the tier"
                )


def _places(tree: AccountTree) -> Iterator[tuple[str, Settings]]:
    for qos in tree.qos:
        yield f"tier {qos.name}", qos.settings
    for account in tree.accounts:
        yield f"account {account.name}", account.settings
    for row in tree.associations:
        yield f"{row.user} in account {row.account}", row.settings
