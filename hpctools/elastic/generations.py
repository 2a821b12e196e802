"""How one generation follows another: the part of `Membership` that forms, commits and recovers.

See `membership` for the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpctools.elastic import forming as forms
from hpctools.elastic import selection
from hpctools.elastic.assembly import Assembly
from hpctools.elastic.deciding import NOBODY, Growth, GrowthFacts, Settle, Verdict
from hpctools.elastic.effects import Broken, Completed, Decided, Effect, Formed, NotLinked, Send, Waiting
from hpctools.elastic.forming import NO_STATE, Forming, Member, Place
from hpctools.elastic.protocol import worker_place

LINK_ATTEMPTS = 3
RETRY_SECONDS = 0.5
RECOVERIES = 50
STATE_IS_LOST = "no worker that holds the state of the training is left"


class Generations:
    """Who is ready, who trains, and the generation that is on its way.

    Args:
        sizes: allowed numbers of workers, ascending.
        growth: decides when to grow.
        faulty_wait: seconds for which the training waits for somebody that vanished to come back.

    Attributes:
        effects: what is to be carried out.
        generation: number of the generation in force; 0 before the first.
        members: of the generation in force, in rank order.
        facts: what is known for the growth's decision.
    """

    def __init__(
        self, sizes: Sequence[int], growth: Growth | None = None, *, faulty_wait: float = 0.0
    ) -> None:
        self.effects: list[Effect] = []
        self.generation = 0
        self.members: tuple[str, ...] = ()
        self.facts = GrowthFacts(0.0, 0.0, largest=max(sizes))
        self._sizes = tuple(sizes)
        self._growth: Growth = growth or Settle()
        self._faulty_wait = faulty_wait
        self._ready: dict[str, Member] = {}
        self._participants: set[str] = set()  # those that may hold the training's newest state
        self._forming: Forming | None = None
        self._assembly: Assembly | None = None
        self._last_number = 0
        self._done: set[str] = set()
        self._ended = False
        self._finished = False  # ended well: all have done the last step
        self._started = False
        self._any_role = False
        self._retry_after = 0.0
        self._look_at: float | None = None
        self._wait_until = 0.0
        self._vanished: set[str] = set()  # members that may come back, of the generation in force
        self._roll_back: dict[str, Any] = {}
        self._failed_links = 0
        self._step = 0
        self._saved_rounds = NO_STATE  # of streams there are some more than steps
        self._world = 0  # how many trained in the generation in force
        self._recoveries = 0  # since the last step that was completed
        self._decided: tuple[bool, int, str] | None = None
        self._said_to_wait: tuple[int, int] | None = None

    @property
    def last_number(self) -> int:
        """Number of the last generation that was formed, whether or not it came in force."""
        return self._last_number

    def give_up_growth(self) -> None:
        """The run ends: one that is not agreed on yet would be in the way of what is saved."""
        forming = self._forming
        is_open = forming is not None and forming.planned and not forming.committed
        if forming is not None and is_open and set(forming.members) > set(self.members):
            self._forming = None

    def vanished_of(self, agent: str) -> list[str]:
        """Workers of an agent that are gone and may come back, of those that trained."""
        return sorted(each for each in self._vanished if worker_place(each)[0] == agent)

    def foresee(self, worker: str) -> None:
        """A worker is about to be lost whose node was known to go: it is not waited for."""
        if worker in self._ready:
            self._ready[worker].leaving = True

    @property
    def goes_back_to(self) -> int | None:
        """Steps, at most, of the state that all are going back to; None: nobody is."""
        return self._roll_back.get("to_step")

    def _note_roll_back(self, roll_back: dict[str, Any]) -> None:
        self._roll_back = roll_back
        self._step = min(self._step, roll_back["to_step"])
        # The state may go back further than that, and nobody says which of what is saved is void then.
        self._saved_rounds = forms.NO_STATE
        self._said_to_wait = None  # so that it is saved again

    # How generations come about

    def _must_await_forming(self) -> bool:
        """Whether a generation is on its way; one with a leaver in it is given up while it can be."""
        forming = self._forming
        if forming is None or forming.waits:
            return False
        if not forming.planned or forming.committed or not self._has_leaver(forming):
            return True
        self._forming = None
        return False

    def _has_leaver(self, forming: Forming) -> bool:
        return any(self._ready[each].leaving for each in forming.members if each in self._ready)

    def _wanted(self) -> tuple[str, ...]:
        size = selection.largest_within(self._sizes, len(selection.staying(self._ready)))
        return selection.wanted(self._ready, self.members, size)

    def _baseline_complete(self, wanted: Sequence[str]) -> bool:
        return sum(self._ready[each].order[0] == 0 for each in wanted) >= self._sizes[0]

    def _form(self, members: tuple[str, ...], *, planned: bool) -> None:
        self._last_number += 1
        forming = self._forming = Forming(self._last_number, members, planned)
        fields = {} if planned else self._going_back()
        for rank, member in enumerate(members):
            self._send(
                member,
                "form",
                generation=forming.number,
                rank=rank,
                world=len(members),
                recover=not planned,
                **fields,
            )

    def _await_return(self, worker: str, now: float, *, foreseen: bool) -> None:
        """Somebody vanished: for a while as many as before are needed, but for those that had to go."""
        if foreseen:
            return
        if not self._vanished:
            self._wait_until = now + self._faulty_wait
        self._vanished.add(worker)

    def _need(self, now: float) -> int:
        """How many it takes to go on."""
        if not self._vanished or now >= self._wait_until:
            return self._sizes[0]
        known = ((each in self._vanished, self._ready.get(each)) for each in self.members)
        count = sum(gone if member is None else not member.leaving for gone, member in known)
        return max(self._sizes[0], selection.largest_within(self._sizes, count))

    def _recover(self, now: float) -> None:
        """Go on with those that hold the state and can stay; wait parked when they are too few."""
        if self._ended or self._assembly is not None:
            return
        holders = self._holders()
        if not holders:
            self._without_state()
            return
        self._done.clear()
        members = self._recovery_members(holders, now)
        if members:
            self._let_leavers_go(holders)
            self._recoveries += 1
        else:  # who has to go keeps the state, too, as long as it is nowhere but in memory
            holders = [*holders, *(each for each in self._present_holders() if each not in holders)]
        if self._recoveries > RECOVERIES:
            self._break(f"the workers lost each other {RECOVERIES} times in step {self._step}")
            return
        self._participants = set(holders) & set(members) if members else set(holders)
        self._form(members, planned=False)
        for worker in [each for each in holders if each not in members]:
            self._send(worker, "park", generation=self._last_number, **self._going_back())
            self._ready[worker].has_state = True  # perhaps; it says so when it parks
        if not members:
            self._say_that_we_wait(now)

    def _going_back(self) -> dict[str, Any]:
        """What is said with an order to park while all go back to an earlier state."""
        return {"roll_back": {**self._roll_back}} if self._roll_back else {}

    def _holders(self) -> list[str]:
        """Who may have the newest state and stays; else who has it and leaves; else who had an older one."""
        stood_by = [name for name, each in self._ready.items() if each.has_state and not each.leaving]
        return selection.holding(self._ready, self._present_holders()) or stood_by

    def _present_holders(self) -> list[str]:
        return [each for each in self._participants if each in self._ready]

    def _let_savers_go(self) -> None:
        """Who has to go and waits with the others may, once what all of them hold is on disk."""
        forming = self._forming
        if forming is None or not forming.waits or not forming.is_parked_by(self._participants):
            return
        if self._saved_rounds >= max(forming.parked.values(), default=NO_STATE):
            present = self._present_holders()
            self._let_leavers_go([each for each in present if not self._ready[each].leaving] or present)

    def _let_leavers_go(self, holders: Sequence[str]) -> None:
        for worker in [each for each in self._participants if each not in holders]:
            self._participants.discard(worker)
            if worker in self._ready:
                self._drop(worker)

    def _without_state(self) -> None:
        """Nobody has a state: before the first step that only means to begin once more."""
        if self.generation > 0:
            self._break(STATE_IS_LOST, state_is_lost=True)
        else:
            self._started, self._forming = False, None

    def state_lost(self, worker: str, generation: int, reason: str) -> None:
        """Those that are left cannot put the state together, and have found none that is saved."""
        forming = self._forming_as(generation)
        if worker in self._participants and forming is not None and forming.committed:
            self._break(reason, state_is_lost=True)

    def _recovery_members(self, holders: Sequence[str], now: float) -> tuple[str, ...]:
        need = self._need(now)
        members = selection.recovering(self._ready, holders, self._sizes, need)
        return members if len(members) >= need else ()

    def _say_that_we_wait(self, now: float) -> None:
        have, need = len(selection.staying(self._ready)), self._need(now)
        if self._said_to_wait != (have, need):
            self._said_to_wait = (have, need)
            self.effects.append(Waiting(have, need))

    def _commit_if_complete(self, forming: Forming, now: float) -> None:
        if forming.waits or forming.committed or not forming.is_linked:
            return
        if forming.planned:
            self._commit_planned(forming)
        elif forming.is_parked:
            self._commit_recovery(forming, now)

    def _commit_planned(self, forming: Forming) -> None:
        forming.committed = True
        self._failed_links = 0
        transfers = forms.planned_transfers(forming, self.members)
        reporter = next(each for each in forming.members if each in self._participants)
        present = self._present()
        is_called = any(self._ready[each].leaving for each in present)
        rate = self.facts.pace or self.facts.rates.get(len(self.members), 0.0)
        at = forming.switch_at(present, forms.lead_steps(rate, is_called=is_called))
        for member in present:
            how: dict[str, Any] = {"leave": True, "stay": not self._ready[member].leaving}
            if member in forming.members:
                send_to = forms.receivers(transfers, member, forming.members)
                how = {"report": member == reporter, "send_to": send_to, "moves": bool(transfers)}
            self._send(member, "commit", generation=forming.number, agree=True, at=at, **how)
        self._participants.update(forming.members)

    def placed(self, generation: int, place: Place | None) -> None:
        """Where in the data all switch in a step from now: those that join can load what comes there."""
        forming = self._forming_as(generation)
        if forming is not None and forming.planned and forming.committed:
            for joiner in forms.planned_transfers(forming, self.members):
                self._send(joiner, "prepare", generation=generation, place=place)

    def _admit(self, forming: Forming, place: Place | None) -> None:
        for joiner, donor in forms.planned_transfers(forming, self.members).items():
            self._send(
                joiner,
                "commit",
                generation=forming.number,
                agree=False,
                receive_from=forming.members.index(donor),
                place=place,
            )

    def _commit_recovery(self, forming: Forming, now: float) -> None:
        stale = {each for each in forming.members if each in self._ready and self._ready[each].stale}
        donors = forms.recovery_donors(forming, stale)
        if (
            not donors and self.generation > 0 and not self._roll_back
        ):  # else the first asks for what is saved
            self._participants.clear()
            self._recover(now)
            return
        forming.committed = True
        self._failed_links = 0
        self._participants = set(forming.members)
        for member, commit in forms.recovery_commits(forming, donors or forming.members[:1]).items():
            self._send(member, "commit", **commit)

    def _in_force(self, forming: Forming) -> None:
        before, self.members = self.members, forming.members
        world_before, self._world = self._world, len(forming.members)
        self.generation, self._forming = forming.number, None
        self._said_to_wait = self._decided = None
        self._vanished.clear()
        if not forming.planned:
            self._roll_back = {}
        if forming.step > self._step:
            self._step, self._recoveries = forming.step, 0
        for worker in [each for each in before if each not in self.members]:
            if worker not in self._ready or self._ready[worker].leaving:
                self._send(worker, "release")
        self._participants = set(self.members)
        for name, member in self._ready.items():
            member.stale = name not in self.members  # it misses what is done from now on, or gone back to
            member.has_state |= not member.stale
        self.effects.append(
            Formed(
                forming.number,
                self.members,
                before,
                forming.step,
                recovered=not forming.planned,
                world_before=world_before,
            )
        )

    def _complete_if_done(self) -> None:
        training = self._training()
        recovering = self._forming is not None and not self._forming.planned
        if not (recovering or self._ended or self._assembly) and training and self._done >= training:
            self._complete(training)

    def _complete(self, training: set[str]) -> None:
        self._ended = self._finished = True
        self._forming = None
        for member in sorted(self._ready):
            self._send(member, "finish" if member in training else "stop")
        self.effects.append(Completed(tuple(sorted(training))))

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

    def _recovering_after(self, generation: int) -> bool:
        forming = self._forming
        return forming is not None and not forming.planned and forming.number > generation

    def _forming_as(self, generation: int) -> Forming | None:
        forming = self._forming
        return forming if forming is not None and forming.number == generation else None

    def _given_up_with(self, now: float) -> None:
        """Somebody that was to join has vanished before it was let in."""
        if self._forming is not None and self._forming.planned:
            self._forming = None
        else:
            self._recover(now)

    def _retry_planned(self, forming: Forming, now: float) -> None:
        """After too many attempts, do without those that would join; when only leaving is left, recover."""
        if self._failed_links < LINK_ATTEMPTS:
            return
        self._failed_links = 0
        joiners = [each for each in forming.members if each not in self._participants]
        for joiner in joiners:
            self._drop(joiner)
        if joiners:
            self.effects.append(NotLinked(tuple(joiners)))
        else:
            self._recover(now)

    def _break(self, reason: str, *, state_is_lost: bool = False) -> None:
        self._ended = True
        self._forming = None
        self.effects.append(Broken(reason, state_is_lost))

    def _drop(self, worker: str) -> None:
        self._ready.pop(worker, None)
        self._send(worker, "release")

    def _nobody_to_grow_by(self) -> None:
        """Those that a refusal to grow was about have gone."""
        if self._decided is not None and not self._decided[0]:
            world = len(self.members)
            self._note_verdict(world, world, Verdict(False, world, why=NOBODY))

    def _note_verdict(self, world: int, possible: int, verdict: Verdict) -> None:
        if self._decided != (verdict.grow, verdict.to, verdict.why):
            self._decided = (verdict.grow, verdict.to, verdict.why)
            self.effects.append(Decided(world, possible, verdict))

    def _send(self, to: str, kind: str, **fields: Any) -> None:
        self.effects.append(Send(to, {"kind": kind, **fields}))
