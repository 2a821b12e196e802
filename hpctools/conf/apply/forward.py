"""The way forward of a change: stage, drain, add, switch, load, verify, settle."""

from __future__ import annotations

from collections.abc import Set

from hpctools.conf.apply import steps
from hpctools.conf.apply.history import accounts_name, accounts_text
from hpctools.conf.apply.preparation import Prepared
from hpctools.conf.apply.progress import Parts, Progress
from hpctools.conf.apply.record import Phase
from hpctools.conf.apply.verification import verify_accounts, verify_configuration
from hpctools.conf.plan.model import Need, Step
from hpctools.conf.text import fold
from hpctools.errors import ApplyError
from hpctools.slurm.parse import unfold


def forward(prepared: Prepared, parts: Parts, progress: Progress, sick: Set[str]) -> None:
    """Make the change; `progress` tells how far it came when this raises.

    Args:
        sick: nodes that slurmctld refused before.

    Raises:
        ApplyError: a step failed, or the cluster does not run as wanted afterwards.
        HpctoolsError: whatever the parts raise.
        KeyboardInterrupt: Ctrl-C before anything that anybody could notice.
    """
    _stage(prepared, parts, progress)
    parts.interrupts.protect()
    _drain(prepared, parts, progress)
    if prepared.tells_accounts and not prepared.first_start:
        _add(prepared, parts, progress)
        _drain(prepared, parts, progress)  # a node that was DOWN may be back (ReturnToService)
    _switch(prepared, parts, progress)
    _load(prepared, parts, progress)
    progress.enter(parts, Phase.VERIFYING)
    parts.doing("verifying")
    verify_configuration(prepared.request, parts.cluster, sick, parts.interrupts.pause)
    if prepared.tells_accounts:
        _settle(prepared, parts, progress)


def _stage(prepared: Prepared, parts: Parts, progress: Progress) -> None:
    if prepared.switches:
        parts.generations.tidy(keep=())  # what killed applies left may be the room that is needed
        parts.generations.adopt({**prepared.before, **prepared.after})
        progress.base = parts.generations.current
        parts.generations.hold()
        progress.fresh = parts.generations.stage(prepared.after)


def _drain(prepared: Prepared, parts: Parts, progress: Progress) -> None:
    nodes = _to_be_free(prepared)
    if not nodes or prepared.first_start:
        return
    parts.doing(f"draining {fold(nodes)}")
    daemons = parts.cluster.daemons
    taking = daemons.taking_jobs(nodes)
    progress.note(parts.history, drained=(*progress.record.drained, *taking))
    daemons.drain(taking, f"hpctools change {progress.record.number}")
    jobs = daemons.jobs_on(nodes)
    if jobs:
        raise ApplyError(
            f"jobs {', '.join(map(str, jobs))} still hold nodes that must be free",
            f"drain them and wait: scontrol update nodename={fold(nodes)} state=drain reason=change",
        )


def _to_be_free(prepared: Prepared) -> tuple[str, ...]:
    """Nodes that must be free of jobs; those that go too, where a job may begin any moment."""
    stated = [name for step in prepared.steps if step.need is Need.DRAIN for name in step.nodes]
    gone = [
        name
        for change in prepared.plan.changes
        if change.area == "node" and not change.key and change.after is None
        for name in unfold(change.subject)
    ]
    return tuple(dict.fromkeys([*stated, *gone]))


def _add(prepared: Prepared, parts: Parts, progress: Progress) -> None:
    progress.enter(parts, Phase.ADDING)
    parts.doing("adding accounts")
    progress.accounts_begun = True
    parts.cluster.accounts.add(prepared.request.bundle.accounts)


def _switch(prepared: Prepared, parts: Parts, progress: Progress) -> None:
    if progress.fresh is None:
        return
    progress.enter(parts, Phase.SWITCHING, owed=steps.merged(prepared.steps, progress.record.owed))
    parts.doing("switching files")
    parts.generations.switch(progress.fresh)


def _load(prepared: Prepared, parts: Parts, progress: Progress) -> None:
    left = [step for step in prepared.steps if step.need is not Need.DRAIN]
    progress.enter(parts, Phase.ACTING, owed=tuple(left))
    for step in tuple(left):
        parts.interrupts.check()
        if prepared.first_start and step.need is Need.RESTART_SLURMCTLD:
            parts.doing("registering the cluster in slurmdbd")
            progress.accounts_begun = True
            parts.cluster.accounts.bootstrap(prepared.request.bundle.accounts)
        _carry_out(step, parts, progress)
        left.remove(step)
        progress.note(parts.history, owed=tuple(left))


def _carry_out(step: Step, parts: Parts, progress: Progress) -> None:
    parts.doing(steps.told(step))
    progress.tried.append(step)
    parts.cluster.daemons.carry_out(step, parts.interrupts.pause)


def _settle(prepared: Prepared, parts: Parts, progress: Progress) -> None:
    progress.enter(parts, Phase.REMOVING)
    parts.doing("settling accounts")
    request, accounts = prepared.request, parts.cluster.accounts
    progress.accounts_begun = True
    accounts.settle(request.bundle.accounts, prune=request.prune)
    parts.interrupts.check()
    _pass_on(prepared, parts, progress)
    verify_accounts(request, parts.cluster)
    parts.history.write(progress.record.number, accounts_name("after"), accounts_text(accounts.read()))


def _pass_on(prepared: Prepared, parts: Parts, progress: Progress) -> None:
    """Some releases pass limits on to everybody below only when they start anew: after all has been told."""
    if any(change.told and change.needs is Need.RECONFIGURE for change in prepared.plan.changes):
        step = Step(Need.RECONFIGURE)
        progress.note(parts.history, owed=(step,))
        _carry_out(step, parts, progress)
        progress.note(parts.history, owed=())
