"""slurmdbd, told and asked through sacctmgr; the edge of the account sync.

A call that fails ends the sync: what was done stays, the message says how far it came, and the next sync goes
on from there, since it starts from what slurmdbd knows then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby

from hpctools.conf.account_changes import AccountDifference, Call, Kept
from hpctools.conf.account_difference import difference, restoring
from hpctools.conf.accounts import AccountTree
from hpctools.conf.live import read_live
from hpctools.conf.sync import additions, bootstrap, removals
from hpctools.conf.telling import unfailing
from hpctools.errors import CommandError, CommandTimeout, HpctoolsError, UnreachableError
from hpctools.slurm import parse
from hpctools.slurm.environment import asking
from hpctools.slurm.run import run
from hpctools.slurm.types import Job
from hpctools.slurm.versions import parse_release, way_of_coordinators

_Answer = Callable[[], list[Kept]]

Tell = Callable[[Sequence[str], str], str]
"""Runs a program with arguments and standard input, and returns its output; raises CommandError."""

_ASK_SECONDS = 60.0
_LOAD_SECONDS = 900.0  # tens of thousands of people at once; see docs/decisions/0057
_SILENCE = re.compile(
    r"Connection refused|Unable to (contact|establish)|failed to open persistent connection|"
    r"Unable to connect to database|Connection timed out|Socket timed out|Broken pipe|Zero Bytes"
)
_DONE = re.compile("Nothing (new added|deleted|removed)")
_TOGETHER = 16  # slurmdbd works on so many of a thousand small calls at once
_IN_USE = re.compile(r"Job\(s\) active|running jobs", re.IGNORECASE)


def tell(argv: Sequence[str], stdin: str) -> str:
    """Run one of Slurm's commands here.

    Raises:
        UnreachableError: no daemon answers it.
        CommandError: it failed.
    """
    limit = _LOAD_SECONDS if stdin else _ASK_SECONDS
    try:
        return run(argv, timeout=limit, stdin=stdin, env=asking("%s"), new_session=True).stdout
    except CommandTimeout as error:
        raise UnreachableError(error.message, _remedy(argv[0])) from error
    except CommandError as error:
        if _SILENCE.search(f"{error.message}\n{error.stderr_tail}"):
            raise UnreachableError(f"{_daemon(argv[0])} does not answer", _remedy(argv[0])) from error
        raise


def _daemon(program: str) -> str:
    return "slurmdbd" if program == "sacctmgr" else "slurmctld"


def _remedy(program: str) -> str:
    daemon = _daemon(program)
    return f"see `systemctl status {daemon}` and its log; then run the same again"


class Slurmdbd:
    """One cluster's accounts in slurmdbd; every method asks anew, nothing is kept.

    Every method raises UnreachableError when a daemon does not answer, and CommandError when it refuses.

    Args:
        cluster: the cluster's name.
        tell: runs Slurm's commands, `tell` when they are on this machine.
        doing: hears what is done, a line each.
        queue: asks for the jobs in the queue; squeue when None.
    """

    def __init__(
        self,
        cluster: str,
        tell: Tell = tell,
        doing: Callable[[str], None] = lambda line: None,
        queue: Callable[[], Sequence[Job]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._tell = tell
        self._doing = unfailing(doing)
        self._queue = queue

    def read(self) -> AccountTree:
        """What it knows."""
        return read_live(lambda query: self._tell(("sacctmgr", "-nP", *query), ""), self._cluster)

    def jobs(self) -> tuple[Job, ...]:
        """The jobs in the queue: they are what keeps accounts from being removed."""
        if self._queue is not None:
            return tuple(self._queue())
        return tuple(
            parse.jobs(self._tell(("squeue", "--all", "--noheader", f"--format={parse.JOB_FORMAT}"), ""))
        )

    def dump(self) -> str:
        """The whole of it as `sacctmgr dump` writes it."""
        return self._tell(("sacctmgr", "dump", self._cluster, "file=/dev/stdout"), "")

    def difference(self, wanted: AccountTree, *, prune: bool = False) -> AccountDifference:
        """What separates it from what is wanted; the queue is only looked at where something may go."""
        live = self.read()
        found = difference(wanted, live, prune=prune)
        if not any(change.action == "remove" for change in found.changes):
            return found
        return difference(wanted, live, prune=prune, busy=self.jobs())

    def bootstrap(self, wanted: AccountTree) -> None:
        """Tell it what slurmctld must find there at its first start."""
        self.carry_out(bootstrap(self.difference(wanted)))

    def add(self, wanted: AccountTree) -> None:
        """Tell it what the new files speak of; nobody loses anything."""
        self.carry_out(self._additions(self.difference(wanted)))

    def settle(self, wanted: AccountTree, *, prune: bool) -> None:
        """Tell it what has to wait for the new files, what goes among it if `prune`."""
        found = self.difference(wanted, prune=prune)
        kept = self.carry_out((*self._additions(found), *removals(found)))
        for each in (*(found.kept if prune else ()), *kept):
            self._doing(f"kept: {each.kind} {each.subject}: {each.why}")

    def left(self, wanted: AccountTree, *, prune: bool) -> tuple[str, ...]:
        """What still separates it from what is wanted, a line each."""
        return tuple(
            f"{change.action} {change.kind} {change.subject} {change.key} {change.after}".strip()
            for change in self.difference(wanted, prune=prune).changes
        )

    def restore(self, before: AccountTree) -> tuple[str, ...]:
        """Take back what was told since `before` was read; return what has to stay, a line each.

        A cluster that was registered stays: its records hang on it.
        """
        wanted, live = replace(before, clusters=(self._cluster,)), self.read()
        found = restoring(wanted, live)
        if any(change.action == "remove" for change in found.changes):
            found = restoring(wanted, live, busy=self.jobs())
        kept = (*found.kept, *self.carry_out((*self._additions(found), *removals(found))))
        return tuple(f"{each.kind} {each.subject} stays: {each.why}" for each in kept)

    def _additions(self, found: AccountDifference) -> tuple[Call, ...]:
        """How coordinators are told hangs on the release, which is asked for only where there are any."""
        if not any((change.kind, change.action) == ("coordinator", "add") for change in found.changes):
            return additions(found)
        release = parse_release(self._tell(("sacctmgr", "-V"), ""))
        return additions(found, way_of_coordinators(release))

    def carry_out(self, calls: Sequence[Call]) -> tuple[Kept, ...]:
        """Make the calls in their order; return what could not go, because a job had come in between.

        Raises:
            HpctoolsError: a call failed; of the same kind as what was raised, and says how far it came.
        """
        kept: list[Kept] = []
        for together, group in groupby(enumerate(calls), key=lambda each: each[1].together):
            way = self._at_once if together else self._in_order
            for place, answer in way(group):
                try:
                    kept += answer()
                except HpctoolsError as error:
                    _say_how_far(error, calls, place)
                    raise
        return tuple(kept)

    def _in_order(self, calls: Iterable[tuple[int, Call]]) -> Iterator[tuple[int, _Answer]]:
        for place, call in calls:
            self._doing(_told(call))
            yield place, partial(self._carry_out, call)

    def _at_once(self, calls: Iterable[tuple[int, Call]]) -> Iterator[tuple[int, _Answer]]:
        """Each call waits a third of a second for acknowledgements that are late, not for slurmdbd."""
        with ThreadPoolExecutor(_TOGETHER) as pool:
            begun = []
            for place, call in calls:
                self._doing(_told(call))
                begun.append((place, pool.submit(self._carry_out, call)))
            try:
                yield from ((place, future.result) for place, future in begun)
            finally:
                pool.shutdown(cancel_futures=True)

    def _carry_out(self, call: Call) -> list[Kept]:
        try:
            self._tell(("sacctmgr", "--immediate", *call.argv), call.stdin)
        except CommandError as error:
            said = f"{error.message}\n{error.stderr_tail}"
            if _DONE.search(said):
                return []  # somebody else was faster
            if call.argv[0] != "delete" or not _IN_USE.search(said):
                raise
            return self._one_by_one(call)
        return []

    def _one_by_one(self, call: Call) -> list[Kept]:
        """slurmdbd refuses all of a call for one job that is in the queue."""
        if len(call.changes) == 1:
            (change,) = call.changes
            return [Kept(change.kind, change.name, change.account, "a job has come in between")]
        kept: list[Kept] = []
        for change in call.changes:
            names = f"name={change.name}"
            argv = tuple(names if word.startswith("name=") else word for word in call.argv)
            kept += self._carry_out(replace(call, argv=argv, changes=(change,)))
        return kept


def _told(call: Call) -> str:
    text = " ".join(call.argv)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _say_how_far(error: HpctoolsError, calls: Sequence[Call], number: int) -> None:
    done = f"{number} of {len(calls)} calls were done" if number else "nothing was done"
    error.message = f"{error.message}, while telling slurmdbd: {_told(calls[number])}; {done}"
    error.remedy = error.remedy or (
        "slurmdbd's log says more (that its database's disk is full it says only there); "
        "mend it and run the same again: it goes on from there"
    )
    error.args = (error.message,)
