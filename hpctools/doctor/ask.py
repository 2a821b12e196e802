"""The daemons' part of a snapshot: asks slurmctld, slurmdbd and munge; what does not answer is Missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from hpctools.doctor.installation import Accounting, Answer, Missing, Seen, Slurmdbd
from hpctools.errors import CommandError, CommandTimeout, HpctoolsError, UnreachableError
from hpctools.slurm.environment import asking
from hpctools.slurm.run import run

ASK_SECONDS = 20.0
_Value = TypeVar("_Value")
_PING = re.compile(r"^Slurmctld\((\S+)\) at (\S+) is (UP|DOWN)", re.MULTILINE)
_AWAY = re.compile(
    r"Connection refused|Unable to connect|problem talking to the database|Sending PersistInit"
)
_TIMES = re.compile(r"\((\d+)\)")


def see(ask: Callable[[], _Value]) -> Seen[_Value]:
    """What a question yields, or why it yields nothing."""
    try:
        return ask()
    except (UnreachableError, CommandTimeout) as error:
        return Missing(error.message, unreachable=True)
    except HpctoolsError as error:
        return Missing(error.message)
    except OSError as error:
        return Missing(f"{error.filename or 'system'}: {error.strerror or error}")


def controllers() -> tuple[Answer, ...]:
    """Which slurmctlds answer.

    Raises:
        UnreachableError: none is configured that we could ask, or there is no scontrol to ask with.
    """
    try:
        done = run(["scontrol", "ping"], timeout=ASK_SECONDS, check=False, env=asking())
    except CommandError as error:
        raise UnreachableError(f"slurmctld cannot be asked: {error.message}", error.remedy) from None
    found = tuple(
        Answer(f"slurmctld ({role})", host, up == "UP") for role, host, up in _PING.findall(done.stdout)
    )
    if not found:
        words = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise UnreachableError(f"no slurmctld is configured here: scontrol ping says {words}")
    return found


def slurmdbd() -> Slurmdbd:
    """slurmdbd itself."""
    return read_slurmdbd(sacctmgr("show", "config"), sacctmgr("show", "stats"))


def read_slurmdbd(config: str, stats: str) -> Slurmdbd:
    """Read `sacctmgr show config` and `sacctmgr show stats`: pure.

    Raises:
        HpctoolsError: they are not what 22.05 to 26.05 print.
    """
    version = re.search(r"SLURMDBD_VERSION\s*=\s*(\S+)", config)
    now, since = _time(stats, "stats output at"), _time(stats, "Data since")
    if version is None or now is None or since is None:
        raise HpctoolsError("sacctmgr's show config and show stats cannot be read", "run them by hand")
    return Slurmdbd(version[1], now, _time(stats, "rollup last ran"), since)


def _time(text: str, words: str) -> int | None:
    line = next((line for line in text.splitlines() if words in line), "")
    found = _TIMES.search(line)
    # Never is written as the beginning of the epoch.
    return int(found[1]) or None if found else None


def accounting(cluster: str) -> Accounting:
    """What slurmdbd knows of a cluster."""
    return read_accounting(
        cluster,
        clusters=sacctmgr("show", "cluster", "format=Cluster,ControlHost"),
        qos=sacctmgr("show", "qos", "format=Name"),
        accounts=sacctmgr("show", "account", "withcoordinator", "format=Account,Coordinators"),
        associations=sacctmgr("show", "association", "format=Cluster,Account,User"),
        users=sacctmgr("show", "user", "format=User,DefaultAccount"),
    )


def read_accounting(
    cluster: str, *, clusters: str, qos: str, accounts: str, associations: str, users: str
) -> Accounting:
    """Read what `accounting` asks for, all printed by `sacctmgr --noheader --parsable2`: pure."""
    ours = [row[1:] for row in _rows(associations, 3) if row[0] == cluster]
    here = {account for account, _ in ours}
    return Accounting(
        cluster_hosts={row[0]: row[1] for row in _rows(clusters, 2)},
        qos=frozenset(row[0] for row in _rows(qos, 1)),
        accounts={
            name: tuple(filter(None, people.split(",")))
            for name, people in _rows(accounts, 2)
            if name in here
        },
        members=frozenset((user, account) for account, user in ours if user),
        default_accounts={row[0]: row[1] for row in _rows(users, 2)},
    )


def _rows(text: str, columns: int) -> list[list[str]]:
    """Rows with as many columns as were asked for: a `|` in a name breaks its row, which is left out."""
    rows = (line.split("|") for line in text.splitlines() if line)
    return [row for row in rows if len(row) == columns]


def unended(cluster: str) -> frozenset[int]:
    """Ids of the jobs that run as far as slurmdbd knows."""
    words = ["--allusers", "--allocations", "--noheader", "--parsable2", "--state=RUNNING"]
    text = _ask(["sacct", *words, f"--clusters={cluster}", "--format=JobIDRaw"])
    return frozenset(int(line) for line in text.split() if line.isdecimal())


def sacctmgr(*words: str) -> str:
    """What sacctmgr prints; it is never given a word that changes anything.

    Raises:
        UnreachableError: slurmdbd does not answer.
        CommandError: sacctmgr refused.
    """
    return _ask(["sacctmgr", "--noheader", "--parsable2", *words])


def _ask(argv: list[str]) -> str:
    try:
        return run(argv, timeout=ASK_SECONDS, env=asking()).stdout
    except CommandError as error:
        if isinstance(error, CommandTimeout) or _AWAY.search(error.stderr_tail):
            raise UnreachableError(
                f"slurmdbd does not answer ({_last(error.stderr_tail) or error.message})",
                "on its host: systemctl status slurmdbd, and the last lines of its log",
            ) from None
        raise


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def cluster_name(config: Seen[Mapping[str, str]], files: Mapping[str, str]) -> Seen[str]:
    """The cluster's name, from slurmctld, or else from slurm.conf."""
    name = files.get("clustername", "") if isinstance(config, Missing) else config.get("ClusterName", "")
    return name or Missing("no ClusterName is known: slurmctld does not answer, and slurm.conf has none")
