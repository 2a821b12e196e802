"""Why a change is refused before anything happens: pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpctools.conf.apply import fileset
from hpctools.conf.apply.fileset import FileSet
from hpctools.conf.apply.record import Record
from hpctools.conf.plan.model import Change, DisturbedJob, Plan
from hpctools.errors import ApplyError
from hpctools.slurm.states import WAITING


def edited(known: FileSet, present: FileSet, wanted: FileSet) -> tuple[str, ...]:
    """Names of files that somebody else changed since, in another way than the site file wants them now.

    Args:
        known: the files that the last change left in force.
        present: the files there are, under at least the same names.
        wanted: the files to be.
    """
    return tuple(
        name
        for name in fileset.differing(known, {name: present[name] for name in known if name in present})
        if name in fileset.differing(present, wanted)
    )


def refuse_edits(known: FileSet, present: FileSet, wanted: FileSet) -> None:
    """Refuse to overwrite what somebody changed by hand.

    Raises:
        ApplyError: there is such an edit; the message has the diff.
    """
    names = edited(known, present, wanted)
    if names:
        raise ApplyError(
            f"{', '.join(names)} changed since the last apply, by hand or by another program:\n"
            + fileset.diff(known, present, names).rstrip(),
            "put the change into the site file, or throw it away with --discard-edits",
        )


def refuse_moved(planned: FileSet, present: FileSet) -> None:
    """Refuse to go on where somebody wrote files while the change was prepared and agreed to.

    Raises:
        ApplyError: another host that shares the folder, or a person, did.
    """
    names = fileset.differing(planned, present)
    if names:
        raise ApplyError(
            f"{', '.join(names)} changed while this change was prepared, by hand or from another host that"
            " shares the folder; nothing has changed",
            "run the same again: it plans anew",
        )


def refuse_overtaken(known: int | None, last: Record | None) -> None:
    """Refuse what was chosen among changes to which another has been added since.

    Args:
        known: the number of the last change then; None where nothing was chosen.
        last: the last change now.

    Raises:
        ApplyError: another change came in between.
    """
    if known is not None and last is not None and last.number != known:
        raise ApplyError(
            f"another change came in between (change {last.number}); nothing has changed",
            "run the same again",
        )


def refuse_stale(agreed: Plan, now: Plan) -> None:
    """Refuse a plan that no longer fits what there is.

    Jobs come and go: those that it names may have ended, and others may have to wait longer; none may be
    disturbed besides.

    Raises:
        ApplyError: something changed since the plan was made; the message says what.
    """
    gone, new = _only(agreed.changes, now.changes), _only(now.changes, agreed.changes)
    named = {job.id for job in agreed.jobs if not job.waits}
    jobs = [job for job in now.jobs if not job.waits and job.id not in named]
    if not (gone or new or jobs) and (agreed.cluster, agreed.digest) == (now.cluster, now.digest):
        return
    told = [f"  no longer: {_told(change)}" for change in gone]
    told += [f"  new: {_told(change)}" for change in new]
    told += [f"  new: job {job.id} of {job.user} is disturbed: {job.why}" for job in jobs]
    raise ApplyError(
        "the cluster or the site file changed since the plan was made"
        + ("" if not told else ":\n" + "\n".join(told)),
        "look at a new plan: hpctools plan --out FILE",
    )


def refuse_come(agreed: Plan, now: Plan) -> None:
    """Refuse to remove accounts, people and QoS that came since the plan was shown: nobody has agreed to it.

    Raises:
        ApplyError: there are such.
    """
    new = [each for each in _only(now.changes, agreed.changes) if each.told and each.mark == "-"]
    if new:
        raise ApplyError(
            "accounts came while this change was prepared, and it would remove them; nothing has changed:\n"
            + "\n".join(f"  {_told(each)}" for each in new),
            "run the same again: it plans anew",
        )


def refuse_begun(agreed: Plan, now: Plan) -> None:
    """Refuse to disturb jobs that have begun since the plan was shown: nobody has agreed to that.

    Args:
        agreed: the plan that was shown.
        now: the same, made anew.

    Raises:
        ApplyError: there is such a job, or nobody can tell.
    """
    silent = [each for each in now.unknown if each not in agreed.unknown]
    if silent:
        raise ApplyError(
            "jobs could not be looked at again; nothing has changed:\n  " + "\n  ".join(silent),
            "run the same again: it plans anew",
        )
    named = {job.id for job in agreed.jobs if _runs(job)}
    begun = [job for job in now.jobs if _runs(job) and job.id not in named]
    if begun:
        told = "\n".join(f"  job {job.id} of {job.user}: {job.why}" for job in begun)
        raise ApplyError(
            "jobs run that the plan did not name, and it would disturb them; nothing has changed:\n" + told,
            "run the same again: it plans anew",
        )


def _runs(job: DisturbedJob) -> bool:
    return job.state not in WAITING and not job.waits


def _only(some: Iterable[Change], others: Iterable[Change]) -> list[Change]:
    """Those that the others lack, whatever jobs they name."""
    known = {_without_jobs(change) for change in others}
    return [change for change in some if _without_jobs(change) not in known]


def _without_jobs(change: Change) -> Change:
    return replace(change, jobs=(), effect="")


def _told(change: Change) -> str:
    words = " ".join(word for word in (change.area, change.subject, change.key) if word)
    return f"{words} {change.before or '(none)'} -> {change.after or '(none)'}"
