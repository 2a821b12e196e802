"""QoS that `settings` of a site name and that there are not: sacctmgr refuses them amid an apply. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.conf.accounts import AccountTree
from hpctools.conf.stated_qos import stated_qos


def unknown_qos(wanted: AccountTree, live: AccountTree) -> Iterator[str]:
    """A line for each place that names a QoS which is neither a tier nor in slurmdbd."""
    known = {"normal", *(qos.name for tree in (wanted, live) for qos in tree.qos)}
    for place, key, names in stated_qos(wanted):
        if unknown := sorted(names - known):
            told = f"{place}: {key} names {', '.join(unknown)}"
            yield (
                f"{told}, and there is neither such a tier nor such a QoS in slurmdbd: sacctmgr refuses "
                "it, and an apply is taken back; correct `settings`, or add the tier"
            )
