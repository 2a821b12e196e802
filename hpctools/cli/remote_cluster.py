"""What the commands share that speak to a cluster from a laptop."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hpctools.errors import CommandError, UsageError
from hpctools.remote import clusters

if TYPE_CHECKING:
    from hpctools.remote.clusters import Cluster
    from hpctools.remote.route import Road
    from hpctools.remote.session import Session


def find_cluster(name: str) -> Cluster:
    """A cluster of clusters.yaml, or a host; without a name the usual one.

    Raises:
        UsageError: there is no such cluster.
    """
    known = clusters.load(clusters.place(os.environ))
    if not name and not known.usual:
        raise UsageError("which cluster?", "give --cluster NAME, or write `default: NAME` into clusters.yaml")
    return known.find(name or known.usual)


def road() -> Road:
    """How hosts are reached: by ssh's own configuration, or that of $HPCTOOLS_SSH_CONFIG.

    Raises:
        CommandError: paramiko is not installed.
    """
    from hpctools.remote import paramiko_start

    try:
        paramiko_start.load()
        from hpctools.remote.identities import at_terminal
        from hpctools.remote.route import Road
    except ImportError as error:
        raise _without_paramiko(str(error)) from None
    return Road(ssh_configuration(), at_terminal())


def _find_paramiko() -> None:
    """See that paramiko is installed, without loading it."""
    if "paramiko" not in sys.modules and find_spec("paramiko") is None:
        raise _without_paramiko("No module named 'paramiko'")


def _without_paramiko(why: str) -> CommandError:
    remedy = "install it: pip install 'paramiko>=5'"
    return CommandError(f"--cluster needs paramiko: {why}", argv=("hp-submit",), code=None, remedy=remedy)


def ssh_configuration() -> Path | None:
    """$HPCTOOLS_SSH_CONFIG; None: ssh's own files."""
    stated = os.environ.get("HPCTOOLS_SSH_CONFIG")
    return Path(stated) if stated else None


@contextmanager
def session(cluster: Cluster, program: str) -> Iterator[Session]:
    """A cluster to be spoken to, until the block ends."""
    from hpctools.remote.placement import asked

    # The answer is on its way while paramiko is loaded, which takes as long (decision 0216). Without paramiko
    # there is nothing to ask for.
    _find_paramiko()
    nodes = asked(cluster, lambda: user_of(cluster, ssh_configuration()), os.environ, tell(program))
    way = road()
    from hpctools.remote.session import Session

    found = Session(cluster, nodes(), way, tell(program))
    try:
        yield found
    finally:
        found.close()


def user_of(cluster: Cluster, config: Path | None) -> str:
    """Who logs in there: as clusters.yaml says, else as ssh's configuration does of the first login node."""
    from hpctools.remote.ssh_config import settings

    return cluster.user or settings(cluster.login_nodes[0], "", config).user


def tell(program: str) -> Callable[[str], None]:
    """Says something beside the output, in a command's name."""
    return lambda text: print(f"{program}: {text}", file=sys.stderr)


def take_cluster(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """`--cluster NAME` of a command's words, the last where there are several (an alias has one), and the
    others; None when it is not among them.

    Raises:
        UsageError: it has no value.
    """
    name: str | None = None
    rest: list[str] = []
    left = list(words)
    while left and left[0] != "--":
        word = left.pop(0)
        if word.startswith("--cluster="):
            name = word.partition("=")[2]
        elif word == "--cluster" and not left:
            raise UsageError("--cluster needs a name", "give --cluster NAME")
        elif word == "--cluster":
            name = left.pop(0)
        else:
            rest.append(word)
    return name, [*rest, *left]
