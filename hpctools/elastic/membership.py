"""Who trains: the pure heart of the coordinator.

A *generation* is a numbered membership in rank order. There are two ways from one to the next:

- planned (somebody joins or leaves): all members of the next generation link beside the running training;
  then `commit` tells the present ones after which step all switch, which the headers of their gradient
  exchange confirm or put off; those that join are let in when the first switches.
- recovery (somebody vanished, or a group broke): who is left parks, reports the last step it completed, and
  links anew; those that are behind receive the state of one that is ahead, and the step in flight is done
  again.

With fewer workers than the smallest allowed size, those that hold the state wait parked until a recovery with
newcomers makes an allowed size; who has to go waits with them until the state is saved. A coordinator that
takes over first hears how the workers stand (`assembly`).

Nothing here waits, reads a clock or talks: methods take what happened and leave `effects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpctools.elastic import forming as forms
from hpctools.elastic import selection
from hpctools.elastic.assembly import Assembly, Returned
from hpctools.elastic.effects import Adopted, WentBack
from hpctools.elastic.forming import Member, Place
from hpctools.elastic.generations import LINK_ATTEMPTS, RECOVERIES, RETRY_SECONDS, STATE_IS_LOST, Generations

__all__ = ["LINK_ATTEMPTS", "RECOVERIES", "STATE_IS_LOST", "Membership"]


class Membership(Generations):
    """The state machine of a run's generations.

    Args:
        sizes: allowed numbers of workers, ascending; training begins with the first, all of them baseline's.
        growth: decides when to grow.
        faulty_wait: seconds for which the training waits for somebody that vanished to come back before it
            goes on with fewer.

    Attributes:
        facts: what is known for the growth's decision; the coordinator keeps all but the first three current.
    """

    # What workers and agents report

    def ready(self, worker: str, order: tuple[int, ...], now: float, *, has_state: bool = False) -> None:
        """A worker has built and rehearsed everything and waits to be let in."""
        if self.is_broken:
            return  # it waits with the others until it is known whether all begin again
        if self._ended:
            self._send(worker, "stop")  # it was started again too late to be let in
            return
        if len(self._wanted()) <= len(self.members):
            self.facts = replace(self.facts, waiting_since=now)
        self._ready[worker] = Member(order, has_state=has_state, stale=has_state)
        self.facts = replace(self.facts, last_ready=now)
        self.consider(now)

    def returned(self, worker: str, order: tuple[int, ...], how: Returned, now: float) -> None:
        """A worker has come that was in the run already, under another coordinator or until it was lost."""
        self._last_number = max(self._last_number, how.seen, how.generation)
        if self.is_broken and not how.left:
            return
        if how.left or self._ended:
            well = self._finished and (how.done or how.finished)  # what follows the last step is its own
            self._send(worker, "release" if how.left else "finish" if well else "stop")
        elif self._assembly is not None:
            self._assembly.add(worker, how, now)
            if how.ready:
                self._ready[worker] = Member(order, has_state=how.completed >= 0)
            self.consider(now)
        elif how.engaged:
            self._ready[worker] = Member(order, has_state=how.completed >= 0, stale=True)
            self._participants.add(worker)
            self._started = True
            self._recover(now)
            self.consider(now)
        elif how.ready:
            if worker in self._participants:
                self.lost(worker, now)  # what it was told, to form or to switch, was lost on its way
            self.ready(worker, order, now, has_state=how.completed >= 0)

    def expect(self, workers: int) -> None:
        """So many workers have been started and are not ready yet."""
        self.facts = replace(self.facts, starting=workers)

    def is_last(self, worker: str) -> bool:
        """Whether nobody else holds the state: without this worker the run would be over."""
        return self._participants == {worker}

    def knows(self, worker: str) -> bool:
        """Whether a worker has become ready and is still there."""
        return worker in self._ready

    @property
    def known(self) -> frozenset[str]:
        """All workers that have become ready and are still there."""
        return frozenset(self._ready)

    @property
    def is_assembling(self) -> bool:
        """Whether it is still being heard how the workers of another coordinator stand."""
        return self._assembly is not None

    def takes_anybody(self, now: float) -> bool:
        """Whether a worker is heard of which no agent has come."""
        return self._assembly is not None and self._assembly.takes_anybody(now)

    @property
    def is_broken(self) -> bool:
        """Whether it has ended before the training was complete."""
        return self._ended and not self._finished

    def is_awaited(self, worker: str) -> bool:
        """Whether others have parked, or done the last step, and it has not."""
        forming = self._forming
        parked = forming.parked if forming is not None and not forming.planned else {}
        return any(first and worker not in first for first in (parked, self._done))

    @property
    def phase(self) -> str:
        """In which phase the run is, in the words of `watchers.View`."""
        forming = self._forming
        if self._ended:
            return "finishing"
        if not self._started:
            return "waiting" if len(self._ready) + self.facts.starting < self._sizes[0] else "starting"
        if forming is None:
            return "running"
        return "waiting" if forming.waits else "resizing" if forming.planned else "recovering"

    def leaving(self, workers: Iterable[str], now: float) -> None:
        """Workers have to go soon; those that take part go at a step boundary."""
        for worker in workers:
            self._vanished.discard(worker)
            if worker in self._ready:
                self._ready[worker].leaving = True
                if worker not in self._participants and self._assembly is None:
                    self._drop(worker)
                    if self._forming is not None and worker in self._forming.members:
                        self._given_up_with(now)
        self.consider(now)

    def lost(self, worker: str, now: float, *, foreseen: bool = False) -> None:
        """A worker's connection broke, or it fell silent; `foreseen`: its node was known to go."""
        if self._assembly is not None:
            self._assembly.workers.pop(worker, None)
        if (member := self._ready.pop(worker, None)) is None:
            return
        self._done.discard(worker)
        if worker in self._participants:
            self._participants.discard(worker)
            self._await_return(worker, now, foreseen=foreseen or member.leaving)
            self._recover(now)
        elif self._forming is not None and worker in self._forming.members:
            self._given_up_with(now)
        self.consider(now)

    def left(self, worker: str, now: float, *, stays: bool = False) -> None:
        """A member has switched out: it waits for its release, or (`stays`) to be let in again."""
        counted_on = worker in self._participants and not stays
        self._participants.discard(worker)
        if stays and worker in self._ready:
            self._ready[worker].has_state = True
        else:
            self._ready.pop(worker, None)
        if counted_on and self._forming is not None and not self._forming.planned:
            self._recover(now)  # it had left before it could hear that it is needed
        self.consider(now)

    def trains(self, worker: str) -> bool:
        """Whether a worker takes part in the training, or has been let in."""
        return worker in self._participants

    def store(self, worker: str, generation: int, host: str, port: int) -> None:
        """The new rank 0 offers the store through which the others find each other."""
        forming = self._forming_as(generation)
        if forming is not None and forming.members[:1] == (worker,):
            for member in forming.members[1:]:
                self._send(member, "link", generation=generation, host=host, port=port)

    def linked(self, worker: str, generation: int, now: float, rounds: int | None = None) -> None:
        """A worker, which has completed so many rounds, has connected with all others; see `Forming`."""
        if (forming := self._forming_as(generation)) is not None:
            forming.note_linked(worker, rounds)
            self._commit_if_complete(forming, now)
            self.consider(now)

    def link_failed(self, worker: str, generation: int, now: float) -> None:
        """A worker could not connect with the others of the generation."""
        forming = self._forming_as(generation)
        if forming is None or forming.committed:
            return
        self._failed_links += 1
        self._forming = None
        if forming.planned:
            self._retry_after = now + RETRY_SECONDS * self._failed_links
            self._retry_planned(forming, now)
        elif self._failed_links < 2 * LINK_ATTEMPTS:
            self._recover(now)
        else:
            self._break("the workers that are left cannot connect with each other")
        self.consider(now)

    def parked(self, worker: str, generation: int, completed: int, now: float) -> None:
        """A worker has stopped training and says of how many rounds its state is the result; -1: none."""
        forming = self._forming_as(generation)
        if worker in self._ready:
            self._ready[worker].has_state = completed > forms.NO_STATE
        if forming is not None:
            forming.parked[worker] = completed
            self._commit_if_complete(forming, now)
            self._let_savers_go()

    def saved(self, step: int, rounds: int | None = None) -> None:
        """The state after so many steps is on disk; of how many rounds, when not as many, is `rounds`."""
        self._saved_rounds = max(self._saved_rounds, step if rounds is None else rounds)
        self._let_savers_go()

    def failed(self, worker: str, generation: int, now: float) -> None:
        """The generation's group broke under a worker."""
        forming = self._forming
        in_force = generation == self.generation or (
            forming is not None and forming.committed and generation == forming.number
        )
        if self._assembly is not None and (known := self._assembly.workers.get(worker)) is not None:
            self._assembly.workers[worker] = replace(known, broken=True)
        elif worker in self._participants and in_force and not self._recovering_after(generation):
            self._recover(now)
            self.consider(now)

    def switching(self, worker: str, generation: int, place: Place | None = None) -> None:
        """A survivor has come to the step at which all switch: those that join can be let in."""
        forming = self._forming_as(generation)
        if forming is not None and forming.planned and forming.committed and not forming.admitted:
            forming.admitted = True
            self._admit(forming, place)

    def switched(self, worker: str, generation: int, step: int, now: float) -> None:
        """A worker trains in the generation now, beginning with `step`."""
        forming = self._forming_as(generation)
        if forming is None or not forming.committed:
            return
        forming.switched.add(worker)
        forming.step = max(forming.step, step)
        if forming.is_complete:
            self._in_force(forming)
            self.consider(now)

    def done(self, worker: str) -> None:
        """A worker has completed the last step."""
        self._done.add(worker)
        self._complete_if_done()

    # What others order

    def take_over(self, generation: int, now: float, *, completed: bool = False) -> None:
        """We coordinate a run that another one coordinated: hear first how its workers stand.

        Args:
            generation: the last one that is known to have been in force; 0: none.
            completed: whether its last step is known to be done.
        """
        self._assembly = Assembly(now, completed=completed)
        self._any_role = True  # the first baseline may have gone with who coordinated: it may never be whole
        self._last_number = self.generation = generation
        self._started = generation > 0

    def roll_back(self, to_step: int, skip: Sequence[int], now: float) -> None:
        """All go back to their state after `to_step` steps, and leave out the batches of steps `skip`.

        How far they really went back they say when they park; who has no such state receives it.
        """
        self._note_roll_back({"to_step": to_step, "skip": list(skip)})
        self._recover(now)

    def begin_with_anybody(self) -> None:
        """The baseline may never be whole: the training may begin with whoever is there."""
        self._any_role = True

    def begin_again(self, skip: Sequence[int] = ()) -> None:
        """All are started again, with what a checkpoint has; at the beginning without the steps `skip`."""
        self._ended = self._finished = self._started = False
        self._any_role = True
        self._forming = self._assembly = None
        self._ready.clear()
        self._participants.clear()
        self._done.clear()
        self._roll_back = {"to_step": 0, "skip": list(skip)} if skip else {}
        self._step = self._recoveries = self._failed_links = 0
        self._saved_rounds = forms.NO_STATE
        self.generation, self.members, self._world = 0, (), 0

    def consider(self, now: float) -> None:
        """Begin the next generation when one is wanted and none is on its way."""
        self._look_at = None
        if self._ended or (self._assembly is not None and not self._assembled(self._assembly, now)):
            return
        if self._must_await_forming():
            return
        if not self._started:
            self._consider_first()
        elif self._forming is not None:
            self._consider_waiting(now)
        else:
            self._consider_change(now)

    def next_look(self) -> float | None:
        """When `consider` should be called again though nothing happened; None: no need."""
        return None if self._ended else self._look_at

    # What to do next

    def _assembled(self, assembly: Assembly, now: float) -> bool:
        """Whether enough is known of the workers to go on; then go on."""
        members = assembly.undisturbed()
        until = assembly.deadline(now, silent=self.facts.starting, least=self._sizes[0])
        if not members and now < until:
            self._look_at = until
            return False
        self._assembly = None
        workers = {name: each for name, each in assembly.workers.items() if name in self._ready}
        self._participants = {name for name, each in workers.items() if each.engaged}
        newest = assembly.newest
        for name, each in workers.items():
            self._ready[name].stale = each.generation < newest
        if roll_back := assembly.roll_back:  # the coordinator before us had begun it
            self._note_roll_back(roll_back)
        self._started = self._started or bool(self._participants)
        if assembly.is_complete(workers.values()):
            self._complete({name for name, each in workers.items() if each.trains})
            return False
        if members:
            self._adopt(members, workers)
        elif self._started:
            self.members, self._world = assembly.training()
            self._recover(now)
            if self._roll_back:
                self.effects.append(WentBack(self._last_number, self._roll_back["to_step"]))
        return not self._ended

    def _adopt(self, members: tuple[str, ...], workers: dict[str, Returned]) -> None:
        self.generation, self.members = workers[members[0]].generation, members
        self._world = len(members)
        self._step = max(workers[member].step for member in members)
        self.effects.append(Adopted(self.generation, members))
        self._done |= {member for member in members if workers[member].done}
        self._complete_if_done()

    def _consider_first(self) -> None:
        wanted = self._wanted()
        if len(wanted) >= self._sizes[0] and (self._any_role or self._baseline_complete(wanted)):
            self._started = True
            self._participants = set(wanted)
            self._form(wanted, planned=False)

    def _consider_waiting(self, now: float) -> None:
        """Go on as soon as there are enough."""
        holders = self._holders()
        if holders and self._recovery_members(holders, now):
            self._recoveries = 0
            self._recover(now)
            return
        self._let_savers_go()
        self._say_that_we_wait(now)
        if now < self._wait_until:
            self._look_at = self._wait_until

    def _consider_change(self, now: float) -> None:
        wanted = self._wanted()
        if wanted == self.members:
            self._nobody_to_grow_by()
            return
        if not set(wanted) & set(self.members):
            # Who has to leave trains on while nobody could go on without it.
            if self._recovery_members(self._holders(), now) != self.members:
                self._recover(now)
            return
        if set(wanted) > set(self.members):
            wanted = self._grown(wanted, now)
        if wanted != self.members:
            self._form(wanted, planned=True)

    def _grown(self, wanted: tuple[str, ...], now: float) -> tuple[str, ...]:
        """Those that should train when the growth's judge has been heard."""
        world = len(self.members)
        if now < self._retry_after:
            verdict = forms.not_yet(now, world, len(wanted), self._retry_after)
        else:
            verdict = self._growth.judge(now, world, len(wanted), self.facts)
        self._note_verdict(world, len(wanted), verdict)
        if not verdict.grow:
            self._look_at = verdict.not_before
            return self.members
        size = selection.largest_within(self._sizes, min(verdict.to, len(wanted)))
        return selection.grown(self._ready, self.members, self._sizes, max(size, world), self._failed_links)
