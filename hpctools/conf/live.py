"""What slurmdbd knows now: the questions to ask, and the parser of the answers. Asks nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hpctools.conf.accounts import ROOT, Account, AccountTree, Association, Qos
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, Setting
from hpctools.errors import HpctoolsError

_ASSOCIATION_FIELDS = ("Cluster", "Account", "User", "ParentName", "Partition", *ASSOCIATION_SETTINGS)
_QOS_FIELDS = ("Name", *QOS_SETTINGS)


def live_queries() -> tuple[tuple[str, ...], ...]:
    """Return the arguments to `sacctmgr -nP` whose outputs `parse_live` takes, in the same order."""
    return (
        ("show", "qos", f"format={','.join(_QOS_FIELDS)}"),
        # Without WOPLimits each row would also show what it inherits.
        ("show", "association", f"format={','.join(_ASSOCIATION_FIELDS)}", "WOPLimits"),
        ("show", "account", "withcoordinator", "format=Account,Coordinators"),
        ("show", "user", "format=User,DefaultAccount"),
        ("show", "cluster", "format=Cluster"),
    )


def read_live(ask: Callable[[Sequence[str]], str], cluster: str | None = None) -> AccountTree:
    """Ask slurmdbd what it knows.

    Args:
        ask: runs `sacctmgr -nP` with the arguments that it is given and returns its output.
        cluster: the cluster whose associations count; all when None, for a slurmdbd that serves one.

    Raises:
        HpctoolsError: an answer cannot be understood; and whatever `ask` raises.
    """
    qos, associations, accounts, users, clusters = (ask(query) for query in live_queries())
    return parse_live(qos, associations, accounts, users, clusters, cluster=cluster)


def parse_live(
    qos_text: str,
    association_text: str,
    account_text: str = "",
    user_text: str = "",
    cluster_text: str = "",
    *,
    cluster: str | None = None,
) -> AccountTree:
    """Parse the outputs of `live_queries`, in their order.

    Args:
        cluster: the cluster whose associations count; all when None.

    Raises:
        HpctoolsError: a line does not have the columns that were asked for.
    """
    coordinators = {row[0]: tuple(filter(None, row[1].split(","))) for row in _rows(account_text, 2)}
    rows = [
        row
        for row in _associations(association_text)
        if row["Partition"] == "" and cluster in (None, row["Cluster"])
    ]
    return AccountTree(
        clusters=tuple(row[0] for row in _rows(cluster_text, 1)),
        qos=tuple(_qos(row) for row in _rows(qos_text, len(_QOS_FIELDS))),
        accounts=tuple(_account(row, coordinators) for row in rows if row["User"] == ""),
        default_accounts={row[0]: row[1] for row in _rows(user_text, 2)},
        associations=tuple(
            Association(row["User"], row["Account"], _canonical(row, ASSOCIATION_SETTINGS))
            for row in rows
            if row["User"]
        ),
    )


def _rows(text: str, columns: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != columns:
            raise HpctoolsError(
                f"sacctmgr printed {len(cells)} columns instead of {columns}: {line!r}",
                "run the command by hand, and check that SLURM_* variables do not change its format",
            )
        yield cells


def _associations(text: str) -> Iterator[dict[str, str]]:
    for cells in _rows(text, len(_ASSOCIATION_FIELDS)):
        yield dict(zip(_ASSOCIATION_FIELDS, cells, strict=True))


def _qos(cells: list[str]) -> Qos:
    row = dict(zip(_QOS_FIELDS, cells, strict=True))
    return Qos(row["Name"], _canonical(row, QOS_SETTINGS))


def _account(row: Mapping[str, str], coordinators: Mapping[str, tuple[str, ...]]) -> Account:
    name = row["Account"]
    settings = _canonical(row, ASSOCIATION_SETTINGS)
    return Account(name, row["ParentName"] or ROOT, settings, coordinators.get(name, ()))


def _canonical(row: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, str]:
    return {key: setting.canonical(row[key]) for key, setting in known.items()}
