"""What slurmdbd knows now: the parser of its answers. Asks nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hpctools.conf.accounts import (
    ROOT,
    Account,
    AccountTree,
    Association,
    Beside,
    Qos,
    inherited,
    without_inherited,
)
from hpctools.conf.held import descriptions, held
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, Setting, names_of
from hpctools.errors import HpctoolsError
from hpctools.slurm.account_questions import ASSOCIATION_FIELDS, QOS_FIELDS, USER_FIELDS, live_queries

Row = Mapping[str, str]


def read_live(ask: Callable[[Sequence[str]], str], cluster: str | None = None) -> AccountTree:
    """Ask slurmdbd what it knows, all questions at once.

    Each question waits a third of a second for delayed acknowledgements, not for slurmdbd.

    Args:
        ask: runs `sacctmgr -nP` with the arguments that it is given and returns its output; called from
            several threads.
        cluster: the cluster whose associations count; all when None, for a slurmdbd that serves one.

    Raises:
        HpctoolsError: an answer cannot be understood; and whatever `ask` raises.
    """
    queries = live_queries(cluster)
    with ThreadPoolExecutor(len(queries)) as pool:
        return parse_live(*pool.map(ask, queries), cluster=cluster)


def parse_live(
    qos_text: str,
    association_text: str,
    user_text: str = "",
    cluster_text: str = "",
    tres_text: str = "",
    description_text: str = "",
    *,
    cluster: str | None = None,
) -> AccountTree:
    """Parse the outputs of `live_queries`, in their order.

    slurmdbd accepts names with `|` and with line breaks, which nothing in its output tells apart: such lines
    are left out, and stand in `beside.unread`.

    A limit that a budget has taken (`held.py`) is told as it was before, and stands in `beside.held`: whoever
    compares sees the account that there will be again.

    Args:
        cluster: the cluster whose associations count; all when None.

    Raises:
        HpctoolsError: no line of an answer has the columns that were asked for.
    """
    unread: list[str] = []
    associations = _rows(association_text, ASSOCIATION_FIELDS, unread)
    qos = _rows(qos_text, QOS_FIELDS, unread)
    users = sorted(_rows(user_text, USER_FIELDS, unread), key=lambda row: row["User"])
    clusters = _rows(cluster_text, ("Cluster",), unread)
    tres = _rows(tres_text, ("Type", "Name"), unread)
    ours = [row for row in associations if row["Partition"] == "" and cluster in (None, row["Cluster"])]
    coordinators = _coordinators(users)
    taken = {name: held(text, cluster) for name, text in descriptions(description_text)}
    accounts_here = [_account(row, coordinators, taken) for row in ours if row["User"] == ""]
    return AccountTree(
        clusters=tuple(row["Cluster"] for row in clusters),
        qos=tuple(Qos(row["Name"], _canonical(row, QOS_SETTINGS)) for row in qos),
        accounts=without_inherited(accounts_here),
        default_accounts={row["User"]: row["DefaultAccount"] for row in users},
        associations=tuple(
            Association(row["User"], row["Account"], _canonical(row, ASSOCIATION_SETTINGS))
            for row in ours
            if row["User"]
        ),
        beside=replace(
            _beside(associations, tres, cluster, unread),
            clusters=frozenset(row["Cluster"] for row in clusters if cluster not in (None, row["Cluster"])),
            held=frozenset((name, key) for name, keys in taken.items() for key in keys),
            inherited=inherited(accounts_here),
        ),
    )


def _coordinators(users: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """By account, in the order of the people."""
    found: dict[str, tuple[str, ...]] = {}
    for row in users:
        for account in filter(None, dict.fromkeys(row["Coordinators"].split(","))):
            found[account] = (*found.get(account, ()), row["User"])
    return found


def _beside(
    associations: Sequence[Row], tres: Iterable[Row], cluster: str | None, unread: Sequence[str]
) -> Beside:
    foreign = [row for row in associations if cluster not in (None, row["Cluster"])]
    partitioned = [row for row in associations if row["Partition"] and cluster in (None, row["Cluster"])]
    used = (names_of(row["QOS"]) | names_of(row["DefaultQOS"]) for row in (*foreign, *partitioned))
    return Beside(
        tres=tuple("/".join(filter(None, (row["Type"], row["Name"]))) for row in tres),
        qos=frozenset().union(*used),
        accounts=frozenset(row["Account"] for row in foreign),
        partitioned=frozenset((row["User"], row["Account"]) for row in partitioned),
        unread=tuple(unread),
    )


def _rows(text: str, columns: Sequence[str], unread: list[str]) -> list[Row]:
    """The lines that have the columns; the others go to `unread`."""
    found = [(line, line.split("|")) for line in _lines(text)]
    rows: list[Row] = [
        dict(zip(columns, cells, strict=True)) for _, cells in found if len(cells) == len(columns)
    ]
    strange = [(line, cells) for line, cells in found if len(cells) != len(columns)]
    if strange and not rows:
        line, cells = strange[0]
        raise HpctoolsError(
            f"sacctmgr printed {len(cells)} columns instead of {len(columns)}: {line!r}",
            "run the command by hand, and check that SLURM_* variables do not change its format",
        )
    unread += (line for line, _ in strange)
    return rows


def _lines(text: str) -> Iterator[str]:
    """Split at line feeds only: a name may hold what else Python takes for the end of a line."""
    return (line for line in text.split("\n") if line)


def _account(
    row: Row, coordinators: Mapping[str, tuple[str, ...]], taken: Mapping[str, Mapping[str, str]]
) -> Account:
    name = row["Account"]
    settings = {**_canonical(row, ASSOCIATION_SETTINGS), **taken.get(name, {})}
    return Account(name, row["ParentName"] or ROOT, settings, coordinators.get(name, ()))


def _canonical(row: Row, known: Mapping[str, Setting]) -> dict[str, str]:
    return {key: setting.canonical(row[key]) for key, setting in known.items()}
