"""hp-status and hp-cancel with `--cluster`: asked on a laptop, done on the cluster."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hpctools.cli.ending import run_command
from hpctools.cli.output import show
from hpctools.cli.remote_cluster import find_cluster, session, take_cluster
from hpctools.errors import UsageError
from hpctools.remote.names import is_id, shown

_STAYS_THERE = {"--watch": "use hp-logs --follow", "--plot": "draw it on a login node"}


def elsewhere(program: str, argv: Sequence[str] | None) -> int | None:
    """Do it on the cluster that `--cluster` names, or to which submissions went; None: do it here."""
    words = sys.argv[1:] if argv is None else list(argv)
    named = any(word == "--cluster" or word.startswith("--cluster=") for word in words)
    # Words from another program are a laptop's: the diary of a home that both share must not lead back there.
    if not named and (argv is not None or not any(is_id(word) for word in words)):
        return None
    noted = {} if named else _noted(words)
    if not named and not any(noted.values()):
        return None
    return run_command(program, lambda: _done_there(program, words, noted), debug="--debug" in words)


def refuse_cut_short(cluster: str | None) -> None:
    """Refuse `--clus NAME`, which argparse takes for --cluster and `elsewhere` does not: here is not there.

    Raises:
        UsageError: a cluster is named all the same.
    """
    if cluster is not None:
        raise UsageError("--cluster is cut short", f"write all of it: --cluster {shown(cluster)}")


def _noted(words: Sequence[str]) -> dict[str, str]:
    """What is named, and the cluster to which it went; empty of what nobody noted. None if any is here."""
    from hpctools.elastic.folder import runs_root
    from hpctools.remote import diary, submissions
    from hpctools.submit.runs import is_there

    names = [word for word in words if not word.startswith("-")]
    if any(is_there(runs_root() / name) or submissions.find(name, os.environ) for name in names):
        return {}
    return {name: diary.cluster_of(os.environ, name) for name in names}


def _the_one(noted: Mapping[str, str]) -> str:
    """The cluster to which all went.

    Raises:
        UsageError: they are of several, or nobody knows of some.
    """
    clusters = set(noted.values())
    if len(clusters) > 1:
        went = (f"{shown(name)} {f'to {at}' if at else 'nobody knows where'}" for name, at in noted.items())
        raise UsageError(
            f"not all went to one cluster: {', '.join(went)}", "name those of one: --cluster NAME"
        )
    return clusters.pop()


def _done_there(program: str, words: Sequence[str], noted: Mapping[str, str]) -> int:
    for word in words:
        _refuse_what_stays_there(word.partition("=")[0])
    name, rest = (_the_one(noted), list(words)) if noted else take_cluster(words)
    return _done_at(name or "", program, rest)


def _refuse_what_stays_there(option: str) -> None:
    """Also where it is cut short (`--wat`), as argparse takes it there: its output would never come."""
    for name, remedy in _STAYS_THERE.items():
        if len(option) > len("--") and name.startswith(option):
            raise UsageError(f"{name} does not work with --cluster", remedy)


def _done_at(name: str, program: str, words: Sequence[str]) -> int:
    cluster = find_cluster(name)
    # Its id is the same in each attempt: a second hp-cancel means more than the first. `live`: whoever waits
    # reads what for while they wait, and not when it is over.
    request = {"op": program.removeprefix("hp-"), "words": list(words), "live": True}
    request["request"] = secrets.token_hex(8)
    with session(cluster, program) as open_session:

        def ask() -> Mapping[str, Any]:
            with open_session.exchange(request) as exchange:
                return exchange.result(_hear)

        result = open_session.again(ask)
    _hear(result["stderr"])
    show(_safe(result["stdout"]))
    return int(result["code"])


def _hear(text: object) -> None:
    sys.stderr.write(_safe(text))
    sys.stderr.flush()


def _safe(text: object) -> str:
    return "".join(f"{shown(line)}\n" for line in str(text).splitlines())
