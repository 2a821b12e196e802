"""Reconciles by the clock and by request, inside the service; of several replicas one does it at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.alone import alone
from api.db.engine import StoreError, reading, writing
from api.db.ledger import knowledge
from api.services import runs
from api.services.reconcile import Outcome
from api.services.runs import SCHEDULE, Run
from api.services.tokens import operator
from api.services.worker import Worker
from hpctools.budget.month import Month, day_of
from hpctools.budget.pulling import MonthKnown, looked_at, months_to_pull
from hpctools.errors import BudgetError, HpctoolsError

_log = logging.getLogger("hpctools.scheduler")


class Scheduler:
    """Carries out what is due and what was asked for.

    Args:
        work: reconciles a month as of a moment.
        metric: the cost measure, by which a month's books are found.
        every: seconds between two runs of the present month; 0 for runs by request only.
        clock: Unix seconds now.
    """

    def __init__(
        self,
        engine: Engine,
        work: Callable[[Month, int], Outcome],
        metric: str,
        every: int,
        clock: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._work = work
        self._metric = metric
        self._every = every
        self._clock = clock
        self._worker = Worker("reconcile", self.tick)

    def start(self) -> None:
        """Begin to work, in a thread of its own."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """Begin nothing more, and give what is at work some seconds to end.

        What does not end is cut off with the process: nothing of it is stored; later it is marked lost.
        """
        self._worker.stop(timeout)

    def wake(self) -> None:
        """Look at once whether there is something to do."""
        self._worker.wake()

    def tick(self) -> int:
        """Do all that is due now, if no other replica is at it; return how many runs that were.

        What was cut off, with its process or by the database, is done again at once.

        Raises:
            UnreachableError: the database does not answer.
        """
        if not self._something():
            return 0
        with alone(self._engine) as mine:
            if not mine:
                return 0
            return self._do()

    def _something(self) -> bool:
        with reading(self._engine) as session:
            waiting = bool(runs.waiting(session) or runs.running(session))
        return waiting or bool(self._due())

    def _do(self) -> int:
        count = 0
        with writing(self._engine) as session:
            runs.again(session, runs.bury(session, self._clock()), self._clock())
        for month in self._due():
            with writing(self._engine) as session:
                runs.ask(session, month, SCHEDULE, self._clock())
        while not self._worker.stops and (run := self._first()) is not None:
            result = carry_out(self._engine, run, self._work, self._clock)
            count += 1
            if isinstance(result, StoreError):
                with writing(self._engine) as session:
                    runs.again(session, [run], self._clock())
        return count

    def _first(self) -> Run | None:
        with reading(self._engine) as session:
            return next(iter(runs.waiting(session)), None)

    def _due(self) -> list[Month]:
        """Months whose time has come: the present one by our own pace, earlier ones as `pulling` says."""
        if not self._every:
            return []
        now = self._clock()
        present = Month.of(day_of(now))
        with reading(self._engine) as session:
            last = {month: runs.last(session, month) for month in looked_at(now)}
            known = {
                month: MonthKnown(run.requested_at, not self._closed(session, month))
                for month, run in last.items()
                if run is not None
            }
        is_early = present in known and not is_due(known[present].pulled_at, self._every, now)
        return [month for month in months_to_pull(now, known) if month != present or not is_early]

    def _closed(self, session: Session, month: Month) -> bool:
        known = knowledge(session, month, self._metric)
        return known is not None and known.is_over(month) and not known.estimated


def is_due(last: int, every: int, now: int) -> bool:
    """Whether it is time again. A clock that was set back does not keep us waiting until it has caught up."""
    return not 0 <= now - last < every


def by_hand(engine: Engine, month: Month, work: Callable[[Month, int], Outcome], now: int) -> Outcome:
    """Reconcile a month for somebody who works on the server itself, and tell it as a run.

    While a service is at work on a run of its own it is done all the same, beside it: two at once do no harm.

    Raises:
        HpctoolsError: it failed.
    """
    with alone(engine) as mine:
        if not mine:
            return work(month, now)
        with writing(engine) as session:
            runs.bury(session, now)
            run = runs.ask(session, month, operator(), now)
        result = carry_out(engine, run, work, lambda: now)
    if isinstance(result, HpctoolsError):
        raise result
    return result


def carry_out(
    engine: Engine, run: Run, work: Callable[[Month, int], Outcome], clock: Callable[[], int]
) -> Outcome | HpctoolsError:
    """Reconcile a month and tell what became of it; return the outcome or the error.

    Raises:
        UnreachableError: the database does not answer.
    """
    with writing(engine) as session:
        runs.begun(session, run, clock())
    result: Outcome | HpctoolsError
    try:
        result = work(run.month, clock())
    except HpctoolsError as error:
        result = error
    except Exception:  # noqa: BLE001 - one month's bug must not keep the others from being reconciled
        _log.exception("%s met an error of our own", run.month)
        result = BudgetError("the service met an error of its own", "see its log")
    with writing(engine) as session:
        if isinstance(result, StoreError):
            runs.lost(session, run, result, clock())
        elif isinstance(result, HpctoolsError):
            runs.failed(session, run, result, clock())
        else:
            runs.done(session, run, result, clock())
    _tell(run, result)
    return result


def _tell(run: Run, result: Outcome | HpctoolsError) -> None:
    told = {"reconciliation": run.id, "month": str(run.month)}
    if isinstance(result, HpctoolsError):
        _log.error("%s could not be reconciled: %s", run.month, result, extra=told)
    else:
        _log.info(
            "%s is reconciled: %d bill days, %d jobs, %d ledger entries new or changed",
            run.month,
            result.bill_days,
            result.jobs,
            result.entries,
            extra=told,
        )
