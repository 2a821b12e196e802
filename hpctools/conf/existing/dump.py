"""The file that `sacctmgr dump` writes, read into rows: pure.

The format is described in sacctmgr(1), "FLAT FILE DUMP AND LOAD". slurmdbd turns quotes in what it is told
into backticks before it stores them (measured on 22.05.8), so that a quote in the file always ends a value.
Limits on TRES stand without quotes, also those on a type of GPU: `GrpTRES=cpu=64,gres/gpu:a100=8`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpctools.errors import HpctoolsError

_LINE = re.compile(r"(Cluster|Parent|Account|User|QOS) - '([^']*)'(?::(.*))?")
_LIMIT = r"[a-z_]+(?:/[^=,']+)?=[^:=,']*"
_OPTION = re.compile(rf"([A-Za-z]+)=('[^']*'|{_LIMIT}(?:,{_LIMIT})*|[^:']*)(?::|$)")


@dataclass(frozen=True)
class Row:
    """One account or one person in one account.

    Attributes:
        name: of the account or the Unix account.
        parent: the account above it; a person's account.
        settings: as the file spells them, without quotes.
    """

    name: str
    parent: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Dump:
    """What one cluster's associations were when they were dumped.

    Attributes:
        cluster: its name.
        defaults: settings of the cluster's root association.
        accounts: parents before their children; without `root`.
        users: each person once for each account, and for each partition that the association names.
    """

    cluster: str
    defaults: Mapping[str, str]
    accounts: tuple[Row, ...]
    users: tuple[Row, ...]


def parse_dump(text: str) -> Dump:
    """Parse the file that `sacctmgr dump CLUSTER file=...` wrote.

    Raises:
        HpctoolsError: a line is none of such a file; the message names its number.
    """
    cluster, defaults, parent = "", dict[str, str](), "root"
    accounts: list[Row] = []
    users: list[Row] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        kind, name, settings = _parse_line(line, number)
        if kind == "Cluster":
            cluster, defaults = name, settings
        elif kind == "Parent":
            parent = name
        # 26.05 writes QoS as well; they are read in full from `sacctmgr show qos` on every release.
        elif kind != "QOS":
            (accounts if kind == "Account" else users).append(Row(name, parent, settings))
    if not cluster:
        raise HpctoolsError("the dump names no cluster", "make it with `sacctmgr dump CLUSTER file=FILE`")
    return Dump(cluster, defaults, tuple(accounts), tuple(users))


def _parse_line(line: str, number: int) -> tuple[str, str, dict[str, str]]:
    found = _LINE.fullmatch(line.rstrip())
    if found is None:
        raise _not_understood(line, number)
    kind, name, options = found.groups()
    return kind, name, _parse_options(options or "", line, number)


def _parse_options(options: str, line: str, number: int) -> dict[str, str]:
    settings, at = dict[str, str](), 0
    while at < len(options):
        found = _OPTION.match(options, at)
        if found is None:
            raise _not_understood(line, number)
        settings[found[1]] = found[2].strip("'")
        at = found.end()
    return settings


def _not_understood(line: str, number: int) -> HpctoolsError:
    return HpctoolsError(
        f"line {number} of the dump is not understood: {line[:120]!r}",
        "use the file as `sacctmgr dump CLUSTER file=FILE` writes it",
    )
