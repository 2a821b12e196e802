"""Names that change. Slurm renames neither accounts nor QoS: sacctmgr refuses both.

So the new one comes beside the old one, which takes no more jobs, keeps those that it has, and its history,
and goes when pruning finds it free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from hpctools.conf.account_changes import AccountChange
from hpctools.conf.accounts import AccountTree, Settings
from hpctools.conf.vocabulary import names_of
from hpctools.slurm.states import WAITING
from hpctools.slurm.types import Job


def renamed_accounts(wanted: AccountTree, live: AccountTree) -> Mapping[str, str]:
    """Return the new name by the old one, of accounts whose old name is still there and not wanted again."""
    there = {account.name for account in live.accounts} - {account.name for account in wanted.accounts}
    return {each.renamed_from: each.name for each in wanted.accounts if each.renamed_from in there}


def renamed_qos(wanted: AccountTree, live: AccountTree) -> Mapping[str, str]:
    """Return the new name by the old one, of QoS whose old name is still there and not wanted again."""
    there = {qos.name for qos in live.qos} - {qos.name for qos in wanted.qos}
    return {each.renamed_from: each.name for each in wanted.qos if each.renamed_from in there}


def keeping_renamed(wanted: AccountTree, live: AccountTree, gone: Set[str]) -> AccountTree:
    """Return the wanted tree where lists of QoS keep the old names that they have, for jobs that wait.

    Args:
        gone: old QoS that are removed this time.
    """
    old = renamed_qos(wanted, live).keys() - gone
    if not old:
        return wanted
    qos = {each.name: each.settings for each in live.qos}
    accounts = {each.name: each.settings for each in live.accounts}
    people = {(each.user, each.account): each.settings for each in live.associations}
    return replace(
        wanted,
        qos=tuple(
            replace(each, settings=_keeping("Preempt", each.settings, qos.get(each.name), old))
            for each in wanted.qos
        ),
        accounts=tuple(
            replace(each, settings=_keeping("QOS", each.settings, accounts.get(each.name), old))
            for each in wanted.accounts
        ),
        associations=tuple(
            replace(each, settings=_keeping("QOS", each.settings, people.get((each.user, each.account)), old))
            for each in wanted.associations
        ),
    )


def _keeping(key: str, wanted: Settings, there: Settings | None, old: Set[str]) -> Settings:
    stays = names_of((there or {}).get(key, "")) & old
    if not stays:
        return wanted
    return {**wanted, key: ",".join(sorted(names_of(wanted.get(key, "")) | stays))}


def closed(
    wanted: AccountTree, live: AccountTree, gone: Set[tuple[str, str]], busy: Sequence[Job]
) -> Iterator[AccountChange]:
    """Old accounts and QoS take no more jobs, or what they allow would count twice.

    Args:
        gone: kind and name of what is removed this time.
        busy: the jobs in the queue.
    """
    accounts, qos = renamed_accounts(wanted, live), renamed_qos(wanted, live)
    for account in live.accounts:
        if account.name in accounts and ("account", account.name) not in gone:
            change = AccountChange("account", "set", account.name, key="GrpSubmitJobs", late=True)
            why = f"renamed to {accounts[account.name]}: its jobs go on, new ones are refused"
            yield from _close(change, account.settings, why)
    for each in live.qos:
        if each.name in qos and ("qos", each.name) not in gone:
            change = AccountChange("qos", "set", each.name, key="GrpSubmitJobs", late=True)
            why = f"renamed to {qos[each.name]}: jobs that run go on, new ones are refused"
            yield from _close(change, each.settings, why + _moved(each.name, qos[each.name], busy))


def _moved(old: str, new: str, busy: Sequence[Job]) -> str:
    """What to do for jobs that wait under an old tier, which partitions allow no more."""
    waiting = ",".join(str(job.id) for job in busy if job.qos == old and job.state in WAITING)
    return f"; for those that wait: scontrol update jobid={waiting} qos={new}" if waiting else ""


def _close(change: AccountChange, there: Settings, why: str) -> Iterator[AccountChange]:
    before = there.get("GrpSubmitJobs", "")
    if before != "0":
        yield replace(change, before=before, after="0", why=why)
