"""From a request to a change that may be made, or to the reason why not; nothing is changed here."""

from __future__ import annotations

from dataclasses import dataclass

from hpctools.conf.apply import fileset, steps
from hpctools.conf.apply.cluster import Cluster
from hpctools.conf.apply.fileset import FileSet
from hpctools.conf.apply.generations import Generations
from hpctools.conf.apply.history import History
from hpctools.conf.apply.record import Record
from hpctools.conf.apply.recovery import recover
from hpctools.conf.apply.refusal import refuse_edits, refuse_overtaken, refuse_stale
from hpctools.conf.apply.request import Prospect, Request, concerns, unforeseen
from hpctools.conf.plan.model import Need, Plan, Step
from hpctools.errors import ApplyError, UnreachableError


@dataclass(frozen=True)
class Prepared:
    """A change that may be made.

    Attributes:
        request: what was asked for.
        plan: what separates the cluster from it.
        before: the files there are, under all names that the change touches.
        after: the files to be.
        last: the change before; None for the first.
        steps: what daemons must do, in order.
        first_start: slurmctld does not answer: it will be started, and accounts come around its start.
        later: nodes whose slurmd the person starts, since nothing is known of them yet.
    """

    request: Request
    plan: Plan
    before: FileSet
    after: FileSet
    last: Record | None
    steps: tuple[Step, ...]
    first_start: bool
    later: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All files that there are or will be."""
        return tuple(sorted({*self.before, *self.after}))

    @property
    def switches(self) -> bool:
        """Whether any file differs, in content, mode or owner."""
        return dict(self.before) != dict(self.after)

    @property
    def tells_accounts(self) -> bool:
        """Whether slurmdbd has to be told anything."""
        return self.first_start or any(each.told for each in self.plan.changes)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.switches or self.steps or self.plan.changes)

    def prospect(self, lost: tuple[int, ...] = ()) -> Prospect:
        """What a person is to agree to.

        Args:
            lost: jobs that slurmctld could not keep with the new files.
        """
        by_hand = tuple(self.before) if self.last is None and self.switches else ()
        why = concerns(self.plan, self.steps, by_hand, lost=lost, first_start=self.first_start)
        return Prospect(self.plan, self.steps, why, unforeseen(self.plan, lost))


def prepare(request: Request, generations: Generations, history: History, cluster: Cluster) -> Prepared:
    """Look at everything, under the lock.

    Raises:
        ApplyError: the change is refused: hand edits, a plan that no longer fits, another cluster's history,
            another change that came in between.
        UnreachableError: slurmdbd does not answer, or no daemon can be asked from here.
        HpctoolsError: something cannot be read.
    """
    cluster.planner.ready()
    last = recover(history, generations, cluster.daemons)
    refuse_overtaken(request.after, last)
    known = _known(history, generations, last, request)
    names = {*(file.path for file in request.bundle.files), *generations.managed(), *known}
    before = fileset.read(generations.folder, names)
    after = fileset.wanted(request.bundle, before, request.slurm_user)
    if not request.discard_edits:
        refuse_edits(known, before, after)
    plan = cluster.planner.plan(request.bundle, prune=request.prune)
    # An earlier `hpctools render` may have put a file there that the site does without by now.
    going = fileset.read(generations.folder, [each.path for each in plan.files if each.after is None])
    before = {**before, **going}
    after = fileset.left(after, before, known, [each.path for each in plan.files if not each.meaning])
    if request.expected is not None:
        refuse_stale(request.expected, plan)
    controller = cluster.daemons.controller_answers()
    due = _steps(plan, last, cluster, controller=controller)
    if last is None and controller and not due and "slurm.conf" in fileset.differing(before, after):
        due = (Step(Need.RECONFIGURE),)  # nothing else changes, but daemons compare hashes, comments and all
    later = tuple(n for step in due if step.need is Need.RESTART_SLURMDS for n in step.nodes)
    if controller or before:
        return Prepared(request, plan, before, after, last, due, not controller)
    due = tuple(step for step in due if step.need not in (Need.RESTART_SLURMDS, Need.RECONFIGURE))
    return Prepared(request, plan, before, after, last, due, first_start=True, later=later)


def _known(history: History, generations: Generations, last: Record | None, request: Request) -> FileSet:
    """The files that the last change left in force."""
    if last is None:
        return {}
    cluster = request.bundle.accounts.clusters[0]
    if last.cluster != cluster:
        raise ApplyError(
            f"{history.state} is the history of cluster {last.cluster!r}, not of {cluster!r}",
            "name another folder with --state",
        )
    folder = str(generations.folder)
    if last.folder != folder and not request.discard_edits:
        raise ApplyError(
            f"{history.state} is the history of {last.folder}, not of {folder}",
            "name another history with --state; or if the configuration has moved: --discard-edits, once",
        )
    return history.files(last.number, last.in_force)


def _steps(plan: Plan, last: Record | None, cluster: Cluster, *, controller: bool) -> tuple[Step, ...]:
    accounting = cluster.daemons.accounting_answers() if plan.unknown or not controller else True
    owed = last.owed if last else ()
    due = steps.due(plan.steps, owed, controller=controller, accounting=accounting or controller)
    if not accounting and not any(step.need is Need.RESTART_SLURMDBD for step in due):
        raise UnreachableError(
            "slurmdbd does not answer, so accounts cannot be compared; nothing has changed",
            "see its log, start it, and try again",
        )
    return due
