"""Many new accounts and people at once: the file that `sacctmgr load` reads.

One command for each account and person takes 0.3 to 0.5 s; loading the whole reference site takes under 2 s
(measured on 22.05.8). The format is that of `sacctmgr dump`; `load` without `clean` only adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpctools.conf.accounts import ROOT, Account, AccountTree, Association, Settings

# Where the file's words differ from the commands'.
_WORDS = {"MaxTRES": "MaxTRESPerJob", "MaxWall": "MaxWallDurationPerJob"}


@dataclass(frozen=True)
class AccountFile:
    """What to load, and what will be known then.

    Attributes:
        text: for `sacctmgr --immediate load file=...`; empty when no account or person is new.
        live: the account tree after it was loaded: `sync_commands` goes on from there.
    """

    text: str
    live: AccountTree


def load_file(wanted: AccountTree, live: AccountTree) -> AccountFile:
    """Return a file with the accounts and associations that are wanted and not there yet.

    The cluster, the QoS and slurmctld's TRES must be known to slurmdbd by then (`bootstrap_commands`).
    """
    accounts, associations = _missing(wanted, live)
    if not accounts and not associations:
        return AccountFile("", live)
    coordinated = _coordinated(accounts)
    lines = [f"Cluster - {_quote(wanted.clusters[0])}"]
    for parent in (ROOT, *(account.name for account in wanted.accounts)):
        below = [
            *(_account(account) for account in accounts if account.parent == parent),
            *(_user(row, wanted, coordinated) for row in associations if row.account == parent),
        ]
        lines += [f"Parent - {_quote(parent)}", *below] if below else []
    return AccountFile("\n".join(lines) + "\n", _after(wanted, live, accounts, associations))


def _missing(wanted: AccountTree, live: AccountTree) -> tuple[list[Account], list[Association]]:
    accounts = {account.name for account in live.accounts}
    associations = {(row.user, row.account) for row in live.associations}
    return (
        [account for account in wanted.accounts if account.name not in accounts],
        [row for row in wanted.associations if (row.user, row.account) not in associations],
    )


def _after(
    wanted: AccountTree, live: AccountTree, accounts: Sequence[Account], associations: Sequence[Association]
) -> AccountTree:
    new = {row.user for row in associations} - live.default_accounts.keys()
    defaults = {user: account for user, account in wanted.default_accounts.items() if user in new}
    return replace(
        live,
        # load makes only new people coordinators; the others are left to sync_commands.
        accounts=(*live.accounts, *(_with_new_coordinators(account, new) for account in accounts)),
        associations=(*live.associations, *associations),
        default_accounts={**live.default_accounts, **defaults},
    )


def _with_new_coordinators(account: Account, new: set[str]) -> Account:
    return replace(account, coordinators=tuple(user for user in account.coordinators if user in new))


def _coordinated(accounts: Sequence[Account]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for account in accounts:
        for user in account.coordinators:
            found.setdefault(user, []).append(account.name)
    return found


def _account(account: Account) -> str:
    return f"Account - {_quote(account.name)}" + "".join(_options(account.settings))


def _user(row: Association, wanted: AccountTree, coordinated: Mapping[str, Sequence[str]]) -> str:
    options = [f":DefaultAccount={_quote(wanted.default_accounts[row.user])}"]
    if row.user in coordinated:
        options.append(f":Coordinator={_quote(','.join(coordinated[row.user]))}")
    return f"User - {_quote(row.user)}" + "".join([*options, *_options(row.settings)])


def _options(settings: Settings) -> Iterator[str]:
    for key, value in settings.items():
        if value:
            # The file has this time in minutes, where everything else speaks of seconds.
            text = str(int(value) // 60) if key == "MaxWall" else value
            yield f":{_WORDS.get(key, key)}={_quote(text)}"


def _quote(text: str) -> str:
    """Names and values have strict patterns, none of which contains a quote."""
    return f"'{text}'"
