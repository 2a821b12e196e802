"""From sacctmgr's own words, as it dumps and shows them, to the account tree that everything compares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hpctools.conf.accounts import ROOT, Account, AccountTree, Association, Beside, Qos
from hpctools.conf.existing.dump import Dump, Row
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, Setting, setting_word
from hpctools.errors import HpctoolsError

# The dump has these in minutes (dump_print in sacctmgr's file_functions.c), where `show` prints times.
_MINUTES = {"maxwalldurationperjob": "MaxWall", "grpwall": "GrpWall"}
_PARENT_SHARE = "2147483647"  # slurm.h SLURMDB_FS_USE_PARENT
# Columns of `sacctmgr show qos` that are spelled shorter than the words which set them.
_SHORT_COLUMNS = {
    "usagethres": "UsageThreshold",
    "grpsubmit": "GrpSubmitJobs",
    "maxtres": "MaxTRESPerJob",
    "maxtresmins": "MaxTRESMinsPerJob",
    "mintres": "MinTRESPerJob",
}


def tree_of(dump: Dump, qos: Iterable[Qos]) -> AccountTree:
    """Return the account tree that a dump and the QoS beside it stand for.

    Associations for one partition only are in `beside`, as in a live tree.
    """
    whole = [row for row in dump.users if "Partition" not in row.settings]
    coordinators = coordinated(dump)
    return AccountTree(
        clusters=(dump.cluster,),
        qos=tuple(qos),
        accounts=tuple(
            Account(row.name, row.parent, association_settings(row), coordinators.get(row.name, ()))
            for row in dump.accounts
        ),
        default_accounts={row.name: row.settings.get("DefaultAccount", row.parent) for row in dump.users},
        associations=tuple(Association(row.name, row.parent, association_settings(row)) for row in whole),
        beside=Beside(
            partitioned=frozenset((row.name, row.parent) for row in dump.users if "Partition" in row.settings)
        ),
    )


def coordinated(dump: Dump) -> Mapping[str, tuple[str, ...]]:
    """Return each account's coordinators, in the order of the dump."""
    found: dict[str, dict[str, None]] = {}
    for row in dump.users:
        for account in filter(None, row.settings.get("Coordinator", "").split(",")):
            found.setdefault(account, {})[row.name] = None
    return {account: tuple(names) for account, names in found.items()}


def association_settings(row: Row) -> dict[str, str]:
    """Return a row's settings in sacctmgr's words with canonical values, "" for those that are not set."""
    settings = dict.fromkeys(ASSOCIATION_SETTINGS, "")
    for word, value in row.settings.items():
        known = _word(ASSOCIATION_SETTINGS, word)
        if known is not None:
            settings[known] = _canonical(known, word, value)
    return settings


def _word(known: Mapping[str, Setting], word: str) -> str | None:
    return _MINUTES.get(word.lower()) or setting_word(known, word)


def _canonical(known: str, word: str, value: str) -> str:
    if word.lower() in _MINUTES:
        return str(int(value) * 60) if value.isdecimal() else ""
    if known == "Fairshare" and value == _PARENT_SHARE:
        return "parent"
    return ASSOCIATION_SETTINGS[known].canonical(value)


def parse_qos(text: str) -> tuple[Qos, ...]:
    """Parse `sacctmgr --parsable2 show qos`, with its line of column names and any columns.

    Raises:
        HpctoolsError: the first line names no columns, or a line has other columns.
    """
    lines = text.splitlines()
    columns = [word.strip() for word in lines[0].split("|")] if lines else []
    if "Name" not in columns:
        raise HpctoolsError(
            "the list of QoS begins with no column names", "make it with `sacctmgr --parsable2 show qos`"
        )
    return tuple(_qos(dict(cells)) for cells in _cells(columns, lines[1:]))


def _cells(columns: list[str], lines: Iterable[str]) -> Iterator[Iterable[tuple[str, str]]]:
    for number, line in enumerate(lines, 2):
        values = line.split("|")
        if len(values) != len(columns):
            raise HpctoolsError(
                f"line {number} of the list of QoS has {len(values)} columns instead of {len(columns)}",
                "make it with `sacctmgr --parsable2 show qos`",
            )
        yield zip(columns, values, strict=True)


def _qos(cells: Mapping[str, str]) -> Qos:
    settings = dict.fromkeys(QOS_SETTINGS, "")
    for column, value in cells.items():
        word = _SHORT_COLUMNS.get(column.lower()) or setting_word(QOS_SETTINGS, column)
        if word is not None:
            settings[word] = QOS_SETTINGS[word].canonical(value)
    return Qos(cells["Name"], settings)


def without_root(tree: AccountTree) -> AccountTree:
    """Return a tree without what every slurmdbd has of its own accord: `root` in `root`."""
    return AccountTree(
        clusters=tree.clusters,
        qos=tree.qos,
        accounts=tuple(account for account in tree.accounts if account.name != ROOT),
        default_accounts={user: account for user, account in tree.default_accounts.items() if user != ROOT},
        associations=tuple(row for row in tree.associations if row.account != ROOT),
        beside=tree.beside,
    )
