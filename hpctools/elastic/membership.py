"""Who trains: the pure heart of the coordinator.

A *generation* is a numbered membership in rank order. There are two ways from one to the next:

- planned (somebody joins or leaves): all members of the next generation link beside the running training;
  when all are linked, `commit` goes to the present members, which agree on the step at which they switch
  through the headers of their gradient exchange; those that join are let in when the first has switched.
- recovery (somebody vanished, or a group broke): who is left parks, reports the last step it completed, and
  links anew; those that are behind receive the state of one that is ahead, and the step in flight is done
  again.

Nothing here waits, reads a clock or talks: methods take what happened and leave effects in `effects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hpctools.elastic.effects import Broken, Completed, Effect, Formed, Send
from hpctools.elastic.forming import Forming, Member, receivers

LINK_ATTEMPTS = 3
RETRY_SECONDS = 0.5
RECOVERIES = 50
STATE_IS_LOST = "no worker that holds the state of the training is left"


class Membership:
    """The state machine of a run's generations.

    Args:
        first_size: workers that must be ready before training starts.
        largest: most workers that may train at a time.
        settle: seconds that growth waits for more workers after one became ready.
        patience: the same while workers are known to be starting: one resize is better than two, and
            processes that start take their node's neighbours time, too.
    """

    def __init__(self, first_size: int, largest: int, settle: float = 0.5, patience: float = 3.0) -> None:
        self.effects: list[Effect] = []
        self.generation = 0
        self.members: tuple[str, ...] = ()
        self._first_size = first_size
        self._largest = largest
        self._settle = settle
        self._patience = patience
        self._starting = 0
        self._ready: dict[str, Member] = {}
        self._participants: set[str] = set()  # those that may hold the training's state
        self._forming: Forming | None = None
        self._last_number = 0
        self._done: set[str] = set()
        self._ended = False
        self._started = False
        self._grow_after = 0.0
        self._grow_at_last = 0.0
        self._failed_links = 0
        self._step = 0
        self._recoveries = 0  # since the last step that was completed

    # What workers and agents report

    def ready(self, worker: str, order: tuple[int, ...], now: float) -> None:
        """A worker has built and rehearsed everything and waits to be let in."""
        if self._wanted() == self.members:
            self._grow_at_last = now + max(self._settle, self._patience)
        self._ready[worker] = Member(order)
        self._grow_after = max(self._grow_after, now + self._settle)
        self.consider(now)

    def expect(self, workers: int) -> None:
        """So many workers have been started and are not ready yet."""
        self._starting = workers

    def is_last(self, worker: str) -> bool:
        """Whether nobody else holds the state: without this worker the run would be over."""
        return self._participants == {worker}

    def knows(self, worker: str) -> bool:
        """Whether a worker has become ready and is still there."""
        return worker in self._ready

    def leaving(self, workers: Iterable[str], now: float) -> None:
        """Workers have to go soon; those that take part go at a step boundary."""
        for worker in workers:
            if worker in self._ready:
                self._ready[worker].leaving = True
                if worker not in self._participants:
                    self._drop(worker)
        self.consider(now)

    def lost(self, worker: str, now: float) -> None:
        """A worker's connection broke, or it fell silent."""
        if self._ready.pop(worker, None) is None:
            return
        self._done.discard(worker)
        if worker in self._participants:
            self._participants.discard(worker)
            self._recover()
        elif self._forming is not None and worker in self._forming.members:
            self._forming = None
        self.consider(now)

    def left(self, worker: str, now: float) -> None:
        """A leaver has switched out; it waits for its release."""
        if self._ready.pop(worker, None) is not None:
            self._participants.discard(worker)
        self.consider(now)

    def trains(self, worker: str) -> bool:
        """Whether a worker takes part in the training, or has been let in."""
        return worker in self._participants

    def store(self, worker: str, generation: int, host: str, port: int) -> None:
        """The new rank 0 offers the store through which the others find each other."""
        forming = self._forming_as(generation)
        if forming is not None and worker == forming.members[0]:
            for member in forming.members[1:]:
                self._send(member, "link", generation=generation, host=host, port=port)

    def linked(self, worker: str, generation: int, now: float) -> None:
        """A worker has connected with all others of the generation."""
        forming = self._forming_as(generation)
        if forming is not None:
            forming.linked.add(worker)
            self._commit_if_complete(forming)
            self.consider(now)

    def link_failed(self, worker: str, generation: int, now: float) -> None:
        """A worker could not connect with the others of the generation."""
        forming = self._forming_as(generation)
        if forming is None or forming.committed:
            return
        self._failed_links += 1
        self._forming = None
        if forming.planned:
            self._grow_after = now + RETRY_SECONDS * self._failed_links
            self._retry_planned(forming)
        elif self._failed_links < 2 * LINK_ATTEMPTS:
            self._recover()
        else:
            self._break("the workers that are left cannot connect with each other")
        self.consider(now)

    def parked(self, worker: str, generation: int, completed: int) -> None:
        """A worker has stopped training and says how many steps its state is the result of; -1: none."""
        forming = self._forming_as(generation)
        if forming is not None:
            forming.parked[worker] = completed
            self._commit_if_complete(forming)

    def failed(self, worker: str, generation: int, now: float) -> None:
        """The generation's group broke under a worker."""
        forming = self._forming
        in_force = generation == self.generation or (
            forming is not None and forming.committed and generation == forming.number
        )
        if worker in self._participants and in_force and not self._recovering_after(generation):
            self._recover()
            self.consider(now)

    def switching(self, worker: str, generation: int) -> None:
        """A survivor has come to the step at which all switch: those that join can be let in."""
        forming = self._forming_as(generation)
        if forming is not None and forming.planned and forming.committed and not forming.admitted:
            forming.admitted = True
            self._admit(forming)

    def switched(self, worker: str, generation: int, step: int, now: float) -> None:
        """A worker trains in the generation now, beginning with `step`."""
        forming = self._forming_as(generation)
        if forming is None or not forming.committed:
            return
        forming.switched.add(worker)
        forming.step = max(forming.step, step)
        if forming.switched >= set(forming.members):
            self._in_force(forming)
            self.consider(now)

    def done(self, worker: str) -> None:
        """A worker has completed the last step."""
        self._done.add(worker)
        recovering = self._forming is not None and not self._forming.planned
        training = self._training()
        if not recovering and not self._ended and self._done >= training:
            self._ended = True
            self._forming = None
            for member in sorted(self._ready):
                self._send(member, "finish" if member in training else "stop")
            self.effects.append(Completed(tuple(sorted(training))))

    def consider(self, now: float) -> None:
        """Begin the next generation when one is wanted and none is on its way."""
        if self._ended or self._must_await_forming():
            return
        wanted = self._wanted()
        if not self._started:
            if len(wanted) >= self._first_size and self._baseline_complete(wanted):
                self._started = True
                self._participants = set(wanted)
                self._form(wanted, planned=False)
        elif wanted != self.members and set(wanted) & set(self.members):
            grows = set(wanted) > set(self.members)
            if not grows or now >= self._when_to_grow():
                self._form(wanted, planned=True)

    def next_look(self) -> float | None:
        """When `consider` should be called again though nothing happened; None: no need."""
        waits = self._started and self._forming is None and self._wanted() != self.members
        return self._when_to_grow() if waits else None

    # How generations come about

    def _must_await_forming(self) -> bool:
        """Whether a generation is on its way; one with a leaver in it is given up while it can be."""
        forming = self._forming
        if forming is None:
            return False
        if not forming.planned or forming.committed or not self._has_leaver(forming):
            return True
        self._forming = None
        return False

    def _when_to_grow(self) -> float:
        return max(self._grow_after, self._grow_at_last) if self._starting else self._grow_after

    def _has_leaver(self, forming: Forming) -> bool:
        return any(self._ready[each].leaving for each in forming.members if each in self._ready)

    def _wanted(self) -> tuple[str, ...]:
        staying = [worker for worker, member in self._ready.items() if not member.leaving]
        return tuple(sorted(staying, key=lambda worker: self._ready[worker].order)[: self._largest])

    def _baseline_complete(self, wanted: Sequence[str]) -> bool:
        return sum(self._ready[each].order[0] == 0 for each in wanted) >= self._first_size

    def _form(self, members: tuple[str, ...], *, planned: bool) -> None:
        self._last_number += 1
        forming = self._forming = Forming(self._last_number, members, planned)
        for rank, member in enumerate(members):
            self._send(
                member, "form", generation=forming.number, rank=rank, world=len(members), recover=not planned
            )

    def _recover(self) -> None:
        """Go on with those that hold the state and can stay."""
        if self._ended:
            return
        for worker in [each for each in self._participants if self._leaves(each)]:
            self._participants.discard(worker)
            self._drop(worker)
        remaining = [worker for worker in self._ready if worker in self._participants]
        if not remaining:
            self._break(STATE_IS_LOST)
            return
        self._done.clear()
        self._recoveries += 1
        if self._recoveries > RECOVERIES:
            self._break(f"the workers lost each other {RECOVERIES} times in step {self._step}")
            return
        self._form(tuple(sorted(remaining, key=lambda each: self._ready[each].order)), planned=False)

    def _commit_if_complete(self, forming: Forming) -> None:
        everyone = set(forming.members)
        if forming.committed or not forming.linked >= everyone:
            return
        if forming.planned:
            self._commit_planned(forming)
        elif set(forming.parked) >= everyone:
            self._commit_recovery(forming)

    def _commit_planned(self, forming: Forming) -> None:
        forming.committed = True
        self._failed_links = 0
        transfers = self._planned_transfers(forming)
        reporter = next(each for each in forming.members if each in self._participants)
        for member in self._present():
            if member in forming.members:
                self._send(
                    member,
                    "commit",
                    generation=forming.number,
                    agree=True,
                    report=member == reporter,
                    send_to=receivers(transfers, member, forming.members),
                )
            else:
                self._send(member, "commit", generation=forming.number, agree=True, leave=True)
        self._participants.update(forming.members)

    def _planned_transfers(self, forming: Forming) -> dict[str, str]:
        """Who receives the state from whom; every survivor serves its share."""
        donors = [each for each in forming.members if each in self.members]
        joiners = [each for each in forming.members if each not in self.members]
        return {joiner: donors[place % len(donors)] for place, joiner in enumerate(joiners)}

    def _admit(self, forming: Forming) -> None:
        for joiner, donor in self._planned_transfers(forming).items():
            self._send(
                joiner,
                "commit",
                generation=forming.number,
                agree=False,
                receive_from=forming.members.index(donor),
            )

    def _commit_recovery(self, forming: Forming) -> None:
        furthest = max(forming.parked.values())
        if furthest < 0 and self.generation > 0:
            self._break(STATE_IS_LOST)
            return
        forming.committed = True
        self._failed_links = 0
        donors = [each for each in forming.members if forming.parked[each] == furthest]
        donors = donors if furthest >= 0 else donors[:1]
        behind = [each for each in forming.members if each not in donors]
        transfers = {each: donors[place % len(donors)] for place, each in enumerate(behind)}
        for member in forming.members:
            donor = transfers.get(member)
            self._send(
                member,
                "commit",
                generation=forming.number,
                agree=False,
                report=member == donors[0],
                send_to=receivers(transfers, member, forming.members),
                receive_from=None if donor is None else forming.members.index(donor),
            )

    def _in_force(self, forming: Forming) -> None:
        before, self.members = self.members, forming.members
        self.generation, self._forming = forming.number, None
        if forming.step > self._step:
            self._step, self._recoveries = forming.step, 0
        for worker in [each for each in before if each not in self.members]:
            self._send(worker, "release")
        self._participants = set(self.members)
        self.effects.append(
            Formed(forming.number, self.members, before, forming.step, recovered=not forming.planned)
        )

    # Small words

    def _present(self) -> set[str]:
        """Members of the generation in force that are still there."""
        return {each for each in self.members or self._participants if each in self._ready}

    def _training(self) -> set[str]:
        """Members that do steps now: of the next generation once one of them has switched."""
        forming = self._forming
        if forming is not None and forming.admitted:
            return {each for each in forming.members if each in self._ready}
        return self._present()

    def _leaves(self, worker: str) -> bool:
        member = self._ready.get(worker)
        return member is None or member.leaving

    def _recovering_after(self, generation: int) -> bool:
        forming = self._forming
        return forming is not None and not forming.planned and forming.number > generation

    def _forming_as(self, generation: int) -> Forming | None:
        forming = self._forming
        return forming if forming is not None and forming.number == generation else None

    def _retry_planned(self, forming: Forming) -> None:
        """After too many attempts, do without those that would join; when only leaving is left, recover."""
        if self._failed_links < LINK_ATTEMPTS:
            return
        self._failed_links = 0
        joiners = [each for each in forming.members if each not in self._participants]
        for joiner in joiners:
            self._drop(joiner)
        if not joiners:
            self._recover()

    def _break(self, reason: str) -> None:
        self._ended = True
        self._forming = None
        self.effects.append(Broken(reason))

    def _drop(self, worker: str) -> None:
        self._ready.pop(worker, None)
        self._send(worker, "release")

    def _send(self, to: str, kind: str, **fields: Any) -> None:
        self.effects.append(Send(to, {"kind": kind, **fields}))
