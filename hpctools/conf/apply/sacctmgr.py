"""slurmdbd, read and told through sacctmgr."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hpctools.conf.account_changes import AccountDifference, Call
from hpctools.conf.account_difference import difference, restoring
from hpctools.conf.accounts import AccountTree
from hpctools.conf.live import read_live
from hpctools.conf.sync import additions, bootstrap, removals
from hpctools.errors import CommandError, CommandTimeout, UnreachableError
from hpctools.slurm import run
from hpctools.slurm.types import Job

# Words by which sacctmgr says that slurmdbd does not answer (slurmdbd_agent.c, slurm_persist_conn.c).
SILENCE = re.compile(
    r"[Cc]onnection refused|Unable to connect|Problem talking to the database|Connection timed out"
    r"|open_persist_conn|Sending message type .*Broken pipe"
)
_ASK_SECONDS = 60.0
# A change is not given up early, since it could still happen after we stopped waiting.
_TELL_SECONDS = 900.0
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT", "REVOKED"),
}


class Sacctmgr:
    """See the Protocol `Accounts`.

    Args:
        cluster: the cluster whose accounts they are.
        queue: asks slurmctld for the jobs in the queue: what they need is kept.
    """

    def __init__(self, cluster: str, queue: Callable[[], Sequence[Job]]) -> None:
        self._cluster = cluster
        self._queue = queue

    def read(self) -> AccountTree:
        """See Accounts; of several clusters in one slurmdbd only ours is named."""
        tree = read_live(lambda query: _run(["-nP", *query], _ASK_SECONDS), self._cluster)
        return replace(tree, clusters=tuple(name for name in tree.clusters if name == self._cluster))

    def dump(self) -> str:
        """See Accounts."""
        with tempfile.TemporaryDirectory(prefix="hpctools-") as folder:
            path = Path(folder, "dump")
            _run(["dump", self._cluster, f"file={path}"], _ASK_SECONDS)
            return path.read_text(errors="replace")

    def bootstrap(self, wanted: AccountTree) -> None:
        """See Accounts."""
        _carry_out(bootstrap(difference(wanted, self.read())))

    def add(self, wanted: AccountTree, known: AccountTree) -> None:
        """See Accounts."""
        _carry_out(additions(difference(wanted, known, busy=self._busy())))

    def settle(self, wanted: AccountTree, *, prune: bool) -> None:
        """See Accounts."""
        _both(difference(wanted, self.read(), prune=prune, busy=self._busy()))

    def left(self, wanted: AccountTree, known: AccountTree, *, prune: bool) -> tuple[str, ...]:
        """See Accounts."""
        found = difference(wanted, known, prune=prune, busy=self._busy())
        return tuple(
            " ".join(word for word in (change.action, change.kind, change.subject, change.key) if word)
            for change in found.changes
        )

    def restore(self, before: AccountTree) -> tuple[str, ...]:
        """See Accounts; a cluster that was registered stays, since its records hang on it."""
        found = restoring(replace(before, clusters=(self._cluster,)), self.read(), busy=self._busy())
        _both(found)
        return tuple(f"{kept.kind} {kept.subject}: {kept.why}" for kept in found.kept)

    def _busy(self) -> list[Job]:
        return [job for job in self._queue() if job.state not in _ENDED]


def _both(found: AccountDifference) -> None:
    _carry_out(additions(found))
    _carry_out(removals(found))


def _carry_out(calls: Iterable[Call]) -> None:
    for call in calls:
        _run(["--immediate", *call.argv], _TELL_SECONDS, call.stdin)


def _run(words: Sequence[str], seconds: float, stdin: str = "") -> str:
    try:
        return run.run(["sacctmgr", *words], timeout=seconds, stdin=stdin, new_session=True).stdout
    except CommandTimeout:
        raise
    except CommandError as error:
        if SILENCE.search(error.stderr_tail):
            raise UnreachableError(
                f"slurmdbd does not answer ({error.stderr_tail.splitlines()[-1]})",
                "see its log, start it, and try again",
            ) from None
        raise
