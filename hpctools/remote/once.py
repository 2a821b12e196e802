"""A submission that may be asked for several times, and is made once.

    receiving   nothing was submitted
    submitting  sbatch was started: it may have reached the controller, or not
    submitted   the job id is known

Whoever finds `submitting` asks Slurm for the job by its script, or its run, before submitting anew.

The lock keeps others out. But one that holds for a node only (see docs/decisions/0142-submitted-once.md), and
one that was lost while its process stood still, keep out nobody. So who is at work shows signs of life, which
others wait for, and right before each sbatch it is sure that nobody has gone on in its place.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError
from hpctools.remote.receiving import Reception
from hpctools.remote.submissions import Record, Submission

SETTLE_SECONDS = 15.0
"""So long a request that sbatch has sent may take to appear in the queue of a slurmctld that answers: more
than MessageTimeout's 10 s."""
EXPIRED_SECONDS = 3600.0
"""No munge credential, and so no request, is taken when it is older (MUNGE_MAXIMUM_TTL)."""
_STOOD_SECONDS = 5.0
"""So long after its claim sbatch needs a new one to start: with its own 10 s others would not wait for it."""
_LOST_SECONDS = 10.0
"""Who claimed a submission so long ago, and wrote nothing, will not submit it: twice _STOOD_SECONDS."""
_LOOK_SECONDS = 1.0
# Words of slurm_errno.c after which a job may be there all the same: only the answer is missing.
_UNSURE = re.compile(r"timed out|send/recv|Zero Bytes|Connection reset|Broken pipe|Communication connection")


@dataclass(frozen=True)
class Job:
    """A job that was submitted.

    Attributes:
        run: the elastic run's id; empty when it is none.
        cluster: as sbatch says it, of several; mostly empty.
    """

    job_id: int
    run: str = ""
    cluster: str = ""


@dataclass(frozen=True)
class Answer:
    """What hp-submit said.

    Attributes:
        code: its exit code.
        job: None when it did not say one.
    """

    code: int
    job: Job | None
    stdout: str = ""
    stderr: str = ""


class Slurm(Protocol):
    """What submits, and finds again what was submitted."""

    def submit(self, record: Record, lock: int, go_on: Callable[[], None]) -> Answer:
        """Submit.

        Args:
            lock: a descriptor that what is started keeps open as long as it lasts.
            go_on: called right before each sbatch, which is not started if it raises a RemoteError.
        """
        ...

    def find(self, record: Record) -> Job | None:
        """The job of the submission, if Slurm knows one.

        Raises:
            UnreachableError: the controller does not answer.
        """
        ...

    def forget(self, record: Record) -> None:
        """Remove what a submission that came to nothing has left, and what would be in the next one's way."""
        ...


class Refused(RemoteError):
    """hp-submit said no on the cluster; nothing was submitted.

    Attributes:
        answer: in its words.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__("the cluster refused the submission")
        self.answer = answer


@dataclass
class _Turn:
    """A mark that this process has made.

    Attributes:
        begun: when it claimed to do so, by the file system's clock.
        lost: why it may not go on.
    """

    record: Record
    begun: float
    lost: RemoteError | None = None


@dataclass
class Once:
    """One submission.

    Attributes:
        receive: brings the files into place.
        waiting: called at times while something takes long.
        again: it may have been made on another node, which may see another home.
        age: seconds since then; None where the laptop does not know whether it was ever asked for.
    """

    submission: Submission
    slurm: Slurm
    receive: Callable[[Reception], None]
    waiting: Callable[[], None]
    sleep: Callable[[float], None] = time.sleep
    again: bool = False
    age: float | None = None

    def make(self, wanted: Record, reception: Reception) -> tuple[Record, bool]:
        """Submit, unless it was done; returns the record, and whether it was done before.

        Raises:
            Refused: hp-submit said no.
            RemoteError: the id stands for something else, files are in the way, or another process is at it.
            UnreachableError: Slurm does not answer, and it is not known whether it took the job.
        """
        self.submission.make()
        with self.submission.locked(self.waiting) as lock:
            before = self.submission.record()
            if before is not None and before.request != wanted.request:
                raise RemoteError(
                    f"{wanted.id} is another submission's id",
                    "leave out --submission, or repeat it as it was",
                )
            if before is not None and before.state == "submitted":
                return before, True
            if before is not None and before.state == "submitting":
                found = self._settled(before, partial(self._sign, before))
                if found:
                    return self._note(before, found), True
            unmade_here = before is None or before.state == "receiving"
            if unmade_here and (done := self._made_elsewhere(wanted)):
                return done, True
            self.receive(reception)
            turn = self._marked(wanted, before)
            with self.submission.alive():
                if before is not None and before.state == "submitting":
                    self.slurm.forget(before)
                return self._submit(turn, lock), False

    def _made_elsewhere(self, wanted: Record) -> Record | None:
        """What an earlier attempt made, of which nothing is written in the home that we see.

        Nor does a no that sbatch said here before (`receiving`) speak of what another home's node did since.
        """
        if not self.again:
            return None
        asked = replace(wanted, marked=self.submission.now() - (self.age or 0.0))
        # The last attempt may be younger than the first: no time makes the wait unnecessary.
        found = self._found(asked) if self.age is None else self._settled(asked, expires=False)
        return self._note(asked, found) if found else None

    def _marked(self, wanted: Record, before: Record | None) -> _Turn:
        """Write down that it is submitted now, unless another process is about to do the same.

        Who does not get the claim, or sees what they did not write, submits nothing, and removes nothing.
        """
        begun = self._claimed(before)
        if begun is None or self.submission.record() != before:
            raise _not_now(wanted, "another connection of yours is at work on it")
        record = self.submission.write(replace(wanted, state="submitting"))
        if self.submission.record() != record:
            raise _not_now(wanted, "another connection of yours is at work on it")
        if (stood := self.submission.now() - begun) >= _STOOD_SECONDS:
            raise _not_now(wanted, f"the login node or its file system stood still for {stood:.0f} s")
        return _Turn(record, begun)

    def _go_on(self, turn: _Turn) -> None:
        """Be sure that nobody else goes on, for as long as sbatch needs.

        Between the mark and sbatch lie questions to Slurm, of which each may take long: others may have found
        no job meanwhile. After a moment it takes a new claim and a new mark.

        Raises:
            RemoteError: another process may have gone on.
        """
        if self.submission.now() - turn.begun < _STOOD_SECONDS:
            return
        try:
            new = self._marked(turn.record, turn.record)
        except RemoteError as error:
            turn.lost = error
            raise
        turn.record, turn.begun = new.record, new.begun

    def _claimed(self, before: Record | None) -> float | None:
        """When it became ours to go on from what was written last; None when another process went on."""
        name, turn = before.nonce if before else "", 0
        while not (claim := self.submission.claim(f"{name}.{turn}")).mine:
            if self.submission.record() != before:
                return None
            if self.submission.now() - claim.at >= _LOST_SECONDS:
                turn += 1
            else:
                self.waiting()
                self.sleep(_LOOK_SECONDS)
        return claim.at

    def _submit(self, turn: _Turn, lock: int) -> Record:
        answer = self.slurm.submit(turn.record, lock, partial(self._go_on, turn))
        if turn.lost:
            raise turn.lost
        record = replace(turn.record, stdout=answer.stdout, stderr=answer.stderr)
        if answer.code == 0 and answer.job:
            return self._note(record, answer.job)
        sure = answer.code > 0 and answer.code < 128 and not _UNSURE.search(answer.stderr)
        found = self._found(record) if sure else self._settled(record)
        if found:
            return self._note(record, found)
        self._go_on(turn)
        self.slurm.forget(record)
        self.submission.write(replace(record, state="receiving"))
        raise Refused(answer)

    def _settled(
        self, record: Record, sign: Callable[[], int] = lambda: 0, *, expires: bool = True
    ) -> Job | None:
        """The job, once it is certain that it is there, or will never be.

        Args:
            sign: of life of whoever wrote the record: another one each time it is asked for. Its sbatch may
                not have sent anything yet.
            expires: what was sent was sent when the record was marked, and no later.

        A slurmctld that stands still, or is away, takes up what was sent to it whenever it goes on. So the
        time counts from its first answer to us, who came later: from then on it has the request at hand.
        """
        answered: float | None = None
        seen = sign()
        while True:
            begun = self.submission.now()
            found = self._found(record)
            last, seen = seen, sign()
            if seen != last:
                answered = None
            settled = answered is not None and begun - answered >= SETTLE_SECONDS
            expired = expires and begun - record.marked >= EXPIRED_SECONDS
            if found or (seen == last and (settled or expired)):
                return found
            if answered is None:
                answered = self.submission.now()
            self.waiting()
            self.sleep(_LOOK_SECONDS)

    def _sign(self, before: Record) -> int:
        """See `_settled`.

        Raises:
            RemoteError: they have written something else.
        """
        if self.submission.record() != before:
            raise _not_now(before, "another connection of yours is at work on it")
        return self.submission.touched()

    def _found(self, record: Record) -> Job | None:
        return find(self.slurm, record)

    def _note(self, record: Record, job: Job) -> Record:
        done = with_its_job(record, job)
        try:
            return self.submission.write(done)
        except RemoteError as error:
            # The job is there: that has to be said. The record says `submitting`, and the next one finds it.
            return replace(done, stderr=f"{done.stderr}hp-submit: warning: {error.message}\n")


def find(slurm: Slurm, record: Record) -> Job | None:
    """The job of a submission that may have been made, if Slurm knows one.

    Raises:
        UnreachableError: it cannot be asked.
    """
    try:
        return slurm.find(record)
    except HpctoolsError as error:
        raise UnreachableError(
            f"{error.message}; it is not known whether {record.id} was submitted",
            f"{error.remedy or 'see what Slurm says'}; when it answers, give the same line with "
            f"--submission {record.id}: it is submitted once",
        ) from None


def with_its_job(record: Record, job: Job) -> Record:
    """The record once its job is known."""
    return replace(record, state="submitted", job_id=job.job_id, run=job.run, cluster=job.cluster)


def _not_now(wanted: Record, why: str) -> RemoteError:
    return RemoteError(
        f"{wanted.id} was not submitted now: {why}",
        f"give the same line with --submission {wanted.id} in a minute: it is submitted once",
    )


def command_words(
    options: Sequence[str], script: str, arguments: Iterable[str], command: Sequence[str]
) -> list[str]:
    """hp-submit's words for a submission whose script lies in the run folder."""
    if command:
        return [*options, "--", *command]
    return [*options, script, *arguments]
