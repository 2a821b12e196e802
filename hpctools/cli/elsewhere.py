"""hp-status and hp-cancel with `--cluster`: asked on a laptop, done on the cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hpctools.cli.ending import run_command
from hpctools.cli.output import show
from hpctools.cli.remote_cluster import find_cluster, session, take_cluster
from hpctools.errors import UsageError
from hpctools.remote.names import shown

_STAYS_THERE = {"--watch": "use hp-logs --follow", "--plot": "draw it on a login node"}


def elsewhere(program: str, argv: Sequence[str] | None) -> int | None:
    """Do it on the cluster that `--cluster` names; None when none is named."""
    words = sys.argv[1:] if argv is None else list(argv)
    if not any(word == "--cluster" or word.startswith("--cluster=") for word in words):
        return None
    return run_command(program, lambda: _done_there(program, words), debug="--debug" in words)


def _done_there(program: str, words: Sequence[str]) -> int:
    name, rest = take_cluster(words)
    for word in rest:
        if remedy := _STAYS_THERE.get(word.partition("=")[0]):
            raise UsageError(f"{word.partition('=')[0]} does not work with --cluster", remedy)
    cluster = find_cluster(name or "")
    request = {"op": program.removeprefix("hp-"), "words": rest}
    with session(cluster, program) as open_session:

        def ask() -> Mapping[str, Any]:
            with open_session.exchange(request) as exchange:
                return exchange.result()

        result = open_session.again(ask)
    sys.stderr.write(_safe(result["stderr"]))
    show(_safe(result["stdout"]))
    return int(result["code"])


def _safe(text: object) -> str:
    return "".join(f"{shown(line)}\n" for line in str(text).splitlines())
