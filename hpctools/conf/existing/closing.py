"""What a site file says otherwise than the cluster has it, added in Slurm's own words until nothing is left.

The words of a site file bring defaults along. Where the cluster has something else, or nothing, the entry
`settings` says so; thus nothing that the words cannot express is lost or changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hpctools.conf.accounts import AccountTree, Settings
from hpctools.conf.existing.words import Words, spell_setting


def close_accounts(site: Words, wanted: AccountTree, there: AccountTree) -> bool:
    """Make a site's accounts, people and tiers those that are there, in place.

    Args:
        site: the whole site file; it was compiled to `wanted`.
        wanted: the accounts that it stands for now.
        there: the accounts that it should stand for.

    Returns:
        Whether something was added, so that it is worth compiling again.
    """
    live_qos = {qos.name: qos.settings for qos in there.qos}
    live_accounts = {account.name: account.settings for account in there.accounts}
    live_people = {(row.user, row.account): row.settings for row in there.associations}
    owners = dict(_owners(site["departments"]))
    added = [_add(site["tiers"][qos.name], qos.settings, live_qos.get(qos.name)) for qos in wanted.qos]
    added += [
        _add(owners[account.name], account.settings, live_accounts.get(account.name))
        for account in wanted.accounts
    ]
    for row in wanted.associations:
        live = live_people.get((row.user, row.account))
        if live is not None and _missing(row.settings, live):
            people = owners[row.account].setdefault("members_limits", {})
            added.append(_add(people.setdefault(row.user, {}), row.settings, live))
    return any(added)


def _owners(entries: Iterable[Words]) -> Iterator[tuple[str, Words]]:
    for entry in entries:
        yield entry["name"], entry
        yield from _owners(entry.get("labs", ()))


def _add(entry: Words, wanted: Settings, there: Settings | None) -> bool:
    """Say in `settings` what differs; what is not there at all is nothing to take over."""
    missing = _missing(wanted, there) if there is not None else {}
    if missing:
        entry["settings"] = {**entry.get("settings", {}), **missing}
    return bool(missing)


def _missing(wanted: Settings, there: Settings) -> Mapping[str, str]:
    return {
        key: spell_setting(key, there.get(key, ""))
        for key, value in wanted.items()
        if value != there.get(key, "")
    }
