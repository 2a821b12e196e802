"""Slurm's limits and pending jobs, asked and told through its commands, for enforcement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hpctools.budget.enforcement import Live, PendingJob
from hpctools.conf.held import KEYS, descriptions, held, with_mark
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS
from hpctools.errors import CommandError
from hpctools.slurm.cli import ASK_SECONDS, CHANGE_SECONDS
from hpctools.slurm.environment import asking
from hpctools.slurm.run import run
from hpctools.slurm.versions import hands_limits_down, parse_release

MARK = "hpctools-budget:"
"""Begins the word in a job's AdminComment that tells whose budget holds it."""
_HELD = ("JobHeldAdmin", "JobHeldUser")
_GONE = re.compile(r"already (completing or completed|finished)|Invalid job id|no longer pending", re.I)
_COMMENT = 4000


class SlurmLimits:
    """One cluster's slurmdbd and slurmctld. The account that runs this is Slurm administrator there.

    Args:
        cluster: its name.
        call: runs a command within so many seconds and returns what it printed; raises CommandError.
    """

    def __init__(self, cluster: str, call: Callable[[Sequence[str], float], str] | None = None) -> None:
        self._cluster = cluster
        self._call = call or _run

    def live(self, accounts: Iterable[str]) -> Live:
        """The limits of some accounts and of all that have a mark, and all pending jobs.

        Raises:
            CommandError: Slurm does not answer.
        """
        shown = self._call(("sacctmgr", "-nP", "show", "accounts", "format=Account,Descr"), ASK_SECONDS)
        marks = {name: found for name, text in descriptions(shown) if (found := held(text, self._cluster))}
        return Live(self._limits(sorted({*accounts, *marks})), marks, tuple(self._pending()))

    def set_limits(
        self, account: str, changes: Mapping[str, tuple[str, str]], mark: Mapping[str, str]
    ) -> None:
        """Change limits of an account and its mark in one transaction of slurmdbd.

        Args:
            changes: before and after, canonical, by sacctmgr's word.
            mark: what all limits were before that are ours from now on; none to take the mark away.

        Raises:
            CommandError: slurmdbd does not answer, or refuses.
        """
        where = ("where", f"name={account}", f"cluster={self._cluster}")
        words = [
            f"{key}={ASSOCIATION_SETTINGS[key].argument(after, before)}"
            for key, (before, after) in changes.items()
        ]
        text = with_mark(self._description(account), self._cluster, mark) or account
        told = ("sacctmgr", "-i", "modify", "account", *where, "set", *words, f"Description={text}")
        self._call(told, CHANGE_SECONDS)
        if changes.keys() - {"GrpSubmitJobs"}:
            self._hand_down()

    def hold(self, job: int, account: str) -> None:
        """Have a pending job wait for an operator, and say whose budget wants it; one that is gone may be.

        Raises:
            CommandError: slurmctld does not answer, or refuses.
        """
        comment = " ".join(filter(None, (self._unmarked(job), f"{MARK}{account}")))
        self._tell("update", f"jobid={job}", f"AdminComment={comment}")
        self._tell("hold", str(job))

    def release(self, job: int) -> None:
        """Let a job go that we held; raises as `hold` does."""
        self._tell("release", str(job))
        self._tell("update", f"jobid={job}", f"AdminComment={self._unmarked(job)}")

    def set_qos(self, job: int, qos: str) -> None:
        """Give a pending job another QoS; raises as `hold` does."""
        self._tell("update", f"jobid={job}", f"QOS={qos}")

    def _limits(self, accounts: Sequence[str]) -> dict[str, dict[str, str]]:
        if not accounts:
            return {}
        fields = ("Account", "User", "Partition", *KEYS)
        where = ("where", f"account={','.join(accounts)}", f"cluster={self._cluster}")
        argv = ("sacctmgr", "-nP", "show", "association", *where, f"format={','.join(fields)}", "WOPLimits")
        rows = [line.split("|") for line in self._call(argv, ASK_SECONDS).splitlines()]
        return {
            row[0]: {
                key: ASSOCIATION_SETTINGS[key].canonical(shown)
                for key, shown in zip(KEYS, row[3:], strict=True)
            }
            for row in rows
            if len(row) == len(fields) and row[1] == row[2] == ""
        }

    def _hand_down(self) -> None:
        """Have slurmctld read all limits anew where it does not pass them on to labs by itself."""
        release = parse_release(self._call(("scontrol", "--version"), ASK_SECONDS))
        if not hands_limits_down(release):
            self._call(("scontrol", "reconfigure"), CHANGE_SECONDS)

    def _description(self, account: str) -> str:
        argv = ("sacctmgr", "-nP", "show", "accounts", "where", f"name={account}", "format=Account,Descr")
        return dict(descriptions(self._call(argv, ASK_SECONDS))).get(account, account)

    def _pending(self) -> Iterator[PendingJob]:
        """Held is what has no priority: some are held with a text of their own in the reason's place.

        That text comes last, since it may name licenses, and these may hold a bar.
        """
        argv = ("squeue", "--noheader", "--all", "--states=PENDING", "--format=%A|%V|%Q|%q|%a|%r")
        seen: set[str] = set()
        marked: Mapping[str, str] | None = None
        for line in self._call(argv, ASK_SECONDS).splitlines():
            job, submitted, priority, qos, account, reason = line.split("|", 5)
            if job in seen or not submitted.isdecimal():
                continue
            seen.add(job)
            is_held = priority == "0" or reason in _HELD
            if is_held and marked is None:
                marked = self._comments()
            yield PendingJob(
                int(job), int(submitted), account, qos, is_held, MARK in (marked or {}).get(job, "")
            )

    def _comments(self, job: int | None = None) -> dict[str, str]:
        """AdminComments by job id."""
        chosen = (f"--jobs={job}",) if job is not None else ()
        shape = f"--Format=JobID:24,admin_comment:{_COMMENT}"
        argv = ("squeue", "--noheader", "--all", "--states=PENDING", *chosen, shape)
        lines = self._call(argv, ASK_SECONDS).splitlines()
        return {line[:24].strip(): line[24:].strip().removeprefix("(null)") for line in lines}

    def _unmarked(self, job: int) -> str:
        """A job's AdminComment without our word."""
        try:
            text = self._comments(job).get(str(job), "")
        except CommandError as error:
            if not _GONE.search(error.stderr_tail):
                raise
            return ""
        return " ".join(word for word in text.split() if not word.startswith(MARK))

    def _tell(self, *words: str) -> None:
        try:
            self._call(("scontrol", *words), CHANGE_SECONDS)
        except CommandError as error:
            if not _GONE.search(error.stderr_tail):
                raise


def _run(argv: Sequence[str], timeout: float) -> str:
    return run(argv, timeout=timeout, env=asking("%s")).stdout
