"""One change of a live cluster: all of it or nothing, and a record of it.

    lock -> recover -> plan -> refuse -> preflight -> agree -> lock the folder -> look at jobs again
         -> record -> stage, drain -> add accounts -> switch all files at once -> load them -> verify
         -> settle accounts -> done

Whatever fails after the record has begun is taken back, with the reason (`taking_back.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpctools.conf.apply import fileset, steps
from hpctools.conf.apply.beginning import begin
from hpctools.conf.apply.cluster import Cluster
from hpctools.conf.apply.forward import forward
from hpctools.conf.apply.generations import Generations
from hpctools.conf.apply.history import History
from hpctools.conf.apply.interrupt import Interrupts
from hpctools.conf.apply.lock import locked
from hpctools.conf.apply.preparation import Prepared, prepare
from hpctools.conf.apply.progress import Parts, Progress
from hpctools.conf.apply.record import Phase
from hpctools.conf.apply.refusal import refuse_begun, refuse_come, refuse_moved
from hpctools.conf.apply.request import Outcome, Prospect, Request
from hpctools.conf.apply.taking_back import take_back
from hpctools.conf.telling import unfailing
from hpctools.errors import ApplyError, HpctoolsError

Agree = Callable[[Prospect], None]
"""Shows what is about to be done; raises when nobody agrees to it."""


def change(
    request: Request,
    generations: Generations,
    history: History,
    cluster: Cluster,
    *,
    agree: Agree,
    tell: Callable[[str], None],
) -> Outcome:
    """Carry out a change.

    Args:
        request: what is asked for.
        generations: the configuration folder.
        history: the state folder.
        cluster: the daemons, slurmdbd and the planner.
        agree: asked once, before anything is changed.
        tell: told what is being done; that it fails (`| head`) changes nothing.

    Raises:
        ApplyError: it was refused and nothing has changed, or it failed and was rolled back.
        UnreachableError: slurmdbd does not answer; nothing has changed.
        HpctoolsError: whatever the parts raise before anything has changed.
        KeyboardInterrupt: Ctrl-C before anything has changed.
    """
    tell = unfailing(tell)
    history.prepare()
    with (
        Interrupts(tell) as interrupts,
        locked(history.lock, request.who, request.command, request.wait),
    ):
        prepared = prepare(request, generations, history, cluster)
        if prepared.idle:
            return Outcome(None, prepared.plan)
        parts = Parts(generations, history, cluster, interrupts, tell)
        lost = _preflight(prepared, parts)
        agree(prepared.prospect(lost))
        with _folder_locked(prepared, generations):
            _look_again(prepared, parts)
            return _carry_out(prepared, parts)


@contextmanager
def _folder_locked(prepared: Prepared, generations: Generations) -> Iterator[None]:
    """Keep out other hosts that share the configuration folder, and not the history with our lock.

    A folder that was never taken over, and is not now, stays as it is.
    """
    if not (prepared.switches or generations.store.is_dir()):
        yield
        return
    request = prepared.request
    with locked(generations.lock(), request.who, request.command, request.wait):
        refuse_moved(prepared.before, fileset.read(generations.folder, prepared.names))
        yield


def _preflight(prepared: Prepared, parts: Parts) -> tuple[int, ...]:
    """Boot the new files; return the jobs that would be lost."""
    if not prepared.switches:
        return ()
    parts.doing("booting the new configuration beside the real one")
    boot = parts.cluster.planner.preflight(prepared.request.bundle)
    if boot.problems:
        raise ApplyError(
            "the new configuration does not boot; nothing has changed:\n  " + "\n  ".join(boot.problems),
            "correct the site file; `hpctools preflight` tells more",
        )
    return boot.lost_jobs


def _look_again(prepared: Prepared, parts: Parts) -> None:
    """Plan once more, without another boot: preflight and question take time, and jobs begin meanwhile.

    Files are compared by themselves (`refuse_moved`).
    """
    if prepared.first_start or not prepared.plan.changes:
        return
    parts.doing("looking at jobs again")
    request = prepared.request
    now = parts.cluster.planner.plan(request.bundle, prune=request.prune)
    refuse_begun(prepared.plan, now)
    refuse_come(prepared.plan, now)


def _carry_out(prepared: Prepared, parts: Parts) -> Outcome:
    sick = frozenset(() if prepared.first_start else parts.cluster.daemons.sick())
    progress = begin(prepared, parts)
    try:
        forward(prepared, parts, progress, sick)
    except BaseException as error:
        take_back(error, prepared, parts, progress)
        raise
    return _done(prepared, parts, progress)


def _done(prepared: Prepared, parts: Parts, progress: Progress) -> Outcome:
    """The change is in force and verified: what is left is to say so."""
    parts.interrupts.finish()
    parts.interrupts.doing = "the change is complete and being recorded"
    parts.history.make_room(progress.record.number)
    try:
        progress.note(parts.history, phase=Phase.DONE, in_force="after", owed=())
        if progress.record.drained and (left := parts.cluster.daemons.resume(progress.record.drained)):
            parts.tell(steps.still_drained(left))
        progress.end(parts.history, "applied")
        if progress.base is not None:
            parts.generations.tidy(keep=(progress.base,))
    except HpctoolsError as error:
        raise ApplyError(
            f"the change is complete and in force, but: {error.message}",
            "correct that; the next apply goes on from here",
        ) from error
    return Outcome(progress.record, prepared.plan, prepared.later)
