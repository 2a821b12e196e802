"""Accounts, people and QoS: whether what refers to them finds them."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.doctor.check import checks
from hpctools.doctor.installation import Accounting
from hpctools.doctor.model import Finding, Severity
from hpctools.slurm.types import Partition


def people_have_a_default_account(accounting: Accounting) -> Iterator[Finding]:
    """A job that names no account takes the default one."""
    members: dict[str, set[str]] = {}
    for user, account in accounting.members:
        members.setdefault(user, set()).add(account)
    for user, accounts in sorted(members.items()):
        default = accounting.default_accounts.get(user, "")
        if default not in accounts:
            seen = (
                f"the default account is {default}, where they are no member"
                if default
                else "no default account"
            )
            yield Finding(
                f"user {user}",
                seen,
                "every job that names no account is refused (Invalid account)",
                f"sacctmgr modify user {user} set defaultaccount={min(accounts)}",
            )


def partitions_name_known_qos(partitions: tuple[Partition, ...], accounting: Accounting) -> Iterator[Finding]:
    """slurmctld drops unknown names of AllowQos when it starts, and keeps the list."""
    for partition in partitions:
        unknown = sorted(set(partition.allow_qos) - accounting.qos)
        if unknown:
            yield _unknown(partition.name, "AllowQos", unknown, "sacctmgr add qos")


def partitions_name_known_accounts(
    partitions: tuple[Partition, ...], accounting: Accounting
) -> Iterator[Finding]:
    """Accounts are compared by name only: a misspelled one admits nobody."""
    for partition in partitions:
        unknown = sorted(set(partition.allow_accounts) - set(accounting.accounts))
        if unknown:
            yield _unknown(partition.name, "AllowAccounts", unknown, "sacctmgr add account")


def _unknown(partition: str, key: str, names: list[str], command: str) -> Finding:
    return Finding(
        f"partition {partition}",
        f"{key} names {', '.join(names)}, unknown to slurmdbd",
        "nobody gets in by that name; with no known name left, nobody gets in at all",
        f"correct the name in slurm.conf and scontrol reconfigure, or {command} {','.join(names)}",
    )


def coordinators_are_people_of_the_cluster(accounting: Accounting) -> Iterator[Finding]:
    """A coordinator without any association cannot be told apart from somebody who left."""
    known = {user for user, _ in accounting.members}
    for account, coordinators in sorted(accounting.accounts.items()):
        orphans = sorted(set(coordinators) - known)
        if orphans:
            yield Finding(
                f"account {account}",
                f"its coordinator {', '.join(orphans)} is in no account of this cluster",
                "they may still add people and change limits here, and nothing else shows them",
                f"sacctmgr delete coordinator account={account} names={','.join(orphans)}",
                Severity.WARNING,
            )


def people_have_a_unix_account(strangers: tuple[str, ...]) -> Iterator[Finding]:
    """slurmctld looks up each user's uid when it reads associations."""
    if strangers:
        shown = ", ".join(strangers[:10]) + (f" and {len(strangers) - 10} more" if strangers[10:] else "")
        yield Finding(
            "users",
            f"slurmdbd knows {shown}; this host does not",
            "they cannot submit, and what they ran shows as a number",
            "give them Unix accounts (or repair LDAP here), or remove them: sacctmgr delete user NAME",
            Severity.WARNING,
        )


CHECKS = checks(
    (people_have_a_default_account, "accounting"),
    (partitions_name_known_qos, "partitions accounting"),
    (partitions_name_known_accounts, "partitions accounting"),
    (coordinators_are_people_of_the_cluster, "accounting"),
    (people_have_a_unix_account, "strangers"),
)
