"""The way back of a change that failed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hpctools.conf.apply import steps
from hpctools.conf.apply.interrupt import InterruptedChange
from hpctools.conf.apply.preparation import Prepared
from hpctools.conf.apply.progress import Parts, Progress
from hpctools.conf.apply.record import Phase, Result
from hpctools.conf.plan.model import Step
from hpctools.errors import ApplyError, HpctoolsError


def take_back(error: BaseException, prepared: Prepared, parts: Parts, progress: Progress) -> None:
    """Bring back files, daemons and accounts as they were, and remember why.

    Returns only where `error` is none of ours (Ctrl-C before a change, a defect): the caller lets it go on.

    Raises:
        ApplyError: what happened, and that everything is as before, or what is not.
    """
    parts.interrupts.protect()
    parts.interrupts.finish()
    reason = _reason(error)
    parts.doing(f"{reason.splitlines()[0]}: rolling back")
    parts.history.make_room(progress.record.number)
    troubles = _undo(reason, prepared, parts, progress)
    result: Result = "failed" if troubles else "rolled back"
    told = f"{reason}; {'; '.join(troubles)}" if troubles else reason
    files = "after" if _switched(parts, progress) else "before"
    with suppress(
        HpctoolsError
    ):  # a full disk must not hide what happened; the next change sees a killed one
        progress.end(parts.history, result, reason=told, in_force=files)
    if isinstance(error, HpctoolsError):
        raise _failure(error, reason, troubles, progress) from error


def _failure(error: HpctoolsError, reason: str, troubles: list[str], progress: Progress) -> ApplyError:
    kind = InterruptedChange if isinstance(error, InterruptedChange) else ApplyError
    number = progress.record.number
    if troubles:
        see = f"see `hpctools history {number}` and the daemons' logs; `hpctools plan` tells what differs now"
        return kind(
            f"{reason}; rolling back failed as well:\n  " + "\n  ".join(troubles),
            f"{error.remedy}; {see}" if error.remedy else see,
        )
    return kind(f"{reason}; everything is as before (change {number} was rolled back)", error.remedy)


def _reason(error: BaseException) -> str:
    if isinstance(error, HpctoolsError):
        return error.message
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"


def _undo(reason: str, prepared: Prepared, parts: Parts, progress: Progress) -> list[str]:
    """Take back each part for itself: one that fails does not keep the others."""
    controller = _controller_answers(parts) if progress.tried else True
    loading = steps.back(progress.tried, controller=controller) if prepared.before else ()
    with suppress(HpctoolsError):
        owed = steps.merged(loading, prepared.last.owed if prepared.last else ())
        progress.note(parts.history, phase=Phase.ROLLING_BACK, reason=reason, owed=owed)
    troubles: list[str] = []
    _attempt(troubles, "the old files", lambda: _switch_back(parts, progress))
    for step in loading:
        _attempt(troubles, steps.told(step), lambda step=step: _load(step, parts, progress))  # type: ignore[misc]
    _attempt(troubles, "accounts", lambda: _restore(parts, progress))
    _attempt(troubles, "drained nodes", lambda: _resume(parts, progress))
    with suppress(HpctoolsError):  # what nobody reads is no trouble; the next change removes it
        _tidy(parts, progress)
    return troubles


def _controller_answers(parts: Parts) -> bool:
    try:
        return parts.cluster.daemons.controller_answers()
    except HpctoolsError:  # not in time, or munge has gone: the files go back all the same
        return False


def _attempt(troubles: list[str], what: str, action: Callable[[], None]) -> None:
    try:
        action()
    except HpctoolsError as error:
        troubles.append(f"{what}: {error.message}")


def _switched(parts: Parts, progress: Progress) -> bool:
    return progress.fresh is not None and parts.generations.current == progress.fresh


def _switch_back(parts: Parts, progress: Progress) -> None:
    if progress.base is not None and _switched(parts, progress):
        parts.generations.switch(progress.base)


def _load(step: Step, parts: Parts, progress: Progress) -> None:
    parts.doing(f"{steps.told(step)}, with the old files")
    parts.cluster.daemons.carry_out(step, parts.interrupts.pause)
    left = tuple(each for each in progress.record.owed if each.need is not step.need)
    with suppress(HpctoolsError):  # it is done, and done once more it does no harm
        progress.note(parts.history, owed=left)


def _restore(parts: Parts, progress: Progress) -> None:
    if not progress.accounts_begun or progress.accounts_before is None:
        return
    parts.doing("taking back what slurmdbd was told")
    stays = parts.cluster.accounts.restore(progress.accounts_before)
    if stays:
        raise ApplyError(f"these stay: {'; '.join(stays)}")


def _resume(parts: Parts, progress: Progress) -> None:
    left = parts.cluster.daemons.resume(progress.record.drained) if progress.record.drained else ()
    if left:
        raise ApplyError(steps.still_drained(left))


def _tidy(parts: Parts, progress: Progress) -> None:
    if progress.base is not None:
        parts.generations.tidy(keep=())
