"""Who coordinates when the coordinator is gone: any agent can, one of them does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from hpctools.elastic.complaints import Complaints
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import CoordinatorAddress, RunFolder
from hpctools.elastic.protocol import check_own_address
from hpctools.elastic.reach import Part, Reach
from hpctools.errors import ElasticError

VACANT_SECONDS = 0.1
HEIR_SECONDS = 0.3
CLAIMED_SECONDS = 2.0
# Twice as long for each term in a row that nobody could find: where no address can be written a further term
# has none either. Less than an agent looks for a coordinator while nobody trains.
MOST_CLAIMED_SECONDS = 30.0
CLAIMING = "cannot look who coordinates the run, or coordinate it"
STRANGER = 8
LEAVING = 5


class Succession:
    """An agent's claim to the run's coordination.

    The order of the heirs only spares them a race; the folder sees to it that a term has one coordinator.

    Args:
        appoint: makes the coordinator of a term.
        is_first: whether this agent is the one that coordinates when nobody ever has.
        reach: what the agent knows of whether nodes reach each other.

    Attributes:
        heir: our place among those that take over; far behind until a coordinator has told.
        barred: whether we have gone and so must not take over.
        problem: why we could not look or claim the last time; None: we could.
    """

    def __init__(
        self,
        folder: RunFolder,
        name: str,
        appoint: Callable[[int], Coordinator],
        *,
        is_first: bool,
        reach: Reach | None = None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._appoint = appoint
        self._is_first = is_first
        self._reach = reach or Reach(Part(name))
        self._complaints = Complaints(_say)
        self._vacant: tuple[int, float] | None = None
        self._seen = 0  # the highest term that we know of
        self._term = 0  # that was ours last, unless it has been counted what became of it
        self._cut_off: ElasticError | None = None  # for which the run ends with our next term
        self.problem: ElasticError | None = None
        self.heir = STRANGER
        self.barred = self._leaves = False
        self.coordinator: Coordinator | None = None
        self.work: asyncio.Task[int | None] | None = None

    @property
    def in_office(self) -> bool:
        """Whether the coordinator runs here."""
        return self.work is not None and not self.work.done()

    @property
    def is_completing(self) -> bool:
        """Whether the coordinator runs here and only the end of the run is left to it."""
        return self.in_office and self.coordinator is not None and self.coordinator.is_completing

    def reached(self, address: CoordinatorAddress) -> None:
        """A coordinator has answered there."""
        self._vacant = None
        if not (self.in_office and address.term == self._term):
            self._reach.meet()

    def unreached(self, now: float, *, published: int | None) -> int:
        """Nobody answers; claim the next term when it is our turn. May wait for storage: not for our loop.

        Args:
            published: the term of the coordinator that the folder names; None: it names none.

        Returns:
            The term that is ours now, for `take_office`; 0: none.

        Raises:
            ElasticError: this node and the others do not reach each other, and the run goes on without it.
        """
        if self.in_office or self.barred:
            return 0
        try:  # a folder that cannot be written has no new term either
            self._count_last(now)
            judged = self._reach.judge(self._folder, now)
            self._cut_off = None if judged == "goes on" else self._reach.words(self._folder)
            term = 0 if judged == "leaves" else self._claimed(now, published)
        except ElasticError as problem:
            self.problem = problem
            self._complaints.say(CLAIMING, problem)
            return 0
        if judged == "leaves" and self._cut_off is not None:
            raise self._cut_off
        self.problem = None
        self._complaints.over(CLAIMING)
        return term

    def take_office(self, term: int) -> None:
        """Coordinate; who has to go since it claimed the term does not, and another one claims the next."""
        if self.barred:
            return
        self._term, self.coordinator = term, self._appoint(term)
        if self._cut_off is not None:
            _say(str(self._cut_off))
            self.coordinator.fail(str(self._cut_off))
        self.work = asyncio.ensure_future(self.coordinator.run())

    def named(self, place: int) -> None:
        """A coordinator has told our place among the heirs."""
        if not self._leaves:
            self.heir = place

    def leave(self) -> None:
        """Our node goes: others come first, but when nobody else is left the state has to be saved by us."""
        self._leaves, self.heir = True, max(self.heir, LEAVING)

    def resign(self) -> None:
        """We go: let another agent take over."""
        self.barred = True
        if self.coordinator is not None:
            self.coordinator.resign()

    def _count_last(self, now: float) -> None:
        """The coordinator beside us, if there was one, is no more in office."""
        if self._term and self.coordinator is not None:
            if self.coordinator.had_visitors:
                self._reach.meet()
            elif (address := self._folder.coordinator_of(self._term)) is not None:
                self._reach.superseded(now, address)
        self._term = 0

    def _claimed(self, now: float, published: int | None) -> int:
        term, before = self._folder.current_term(), self._seen
        self._seen = max(term, before)
        if term < before:
            return 0  # an empty folder in the place of what was mounted: terms never go back
        if not self._is_due(now, term, published):
            return 0
        check_own_address()  # who cannot listen leaves the term to another one
        return term + 1 if self._folder.claim_term(term + 1, agent=self._name) else 0

    def _is_due(self, now: float, term: int, published: int | None) -> bool:
        if term == 0:
            return self._is_first
        if self._cut_off is not None:
            return True
        if self._vacant is None or self._vacant[0] != term:
            self._vacant = (term, now)
        first = max(_patience(term - (published or 0)), self._reach.wait)
        return now - self._vacant[1] >= first + HEIR_SECONDS * self.heir


def _patience(unfound: int) -> float:
    """How long to wait for the newest coordinator; `unfound`: terms since the last that was published."""
    if unfound <= 0:
        return VACANT_SECONDS
    return min(CLAIMED_SECONDS * 2.0 ** min(unfound - 1, 16), MOST_CLAIMED_SECONDS)


def _say(words: str) -> None:
    print(f"elastic: {words}", file=sys.stderr, flush=True)
