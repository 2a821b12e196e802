"""Where leases are kept: beside the books, so that a login never waits for a reconciliation.

In PostgreSQL they are tables of the same database under a lock of their own; in SQLite, which has one lock
for a file, a file beside it. Nothing there is worth a disk's flush: nodes tell all of it again soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, Executable, event

from api.db.base import Base
from api.db.engine import connect, reachable
from api.db.in_loop import InLoop, here, here_to_look, in_loop
from api.db.login_models import ADMINISTRATORS, FORMER, LEASES, NODES
from api.db.together import Plain, Question, told_together
from api.db.turns import Turns

_LOCK = 0x68706377
WAIT_SECONDS = 5.0
"""For a turn."""
_WAIT_MS = round(WAIT_SECONDS * 1000)


@dataclass(frozen=True)
class Moment:
    """One transaction of the store.

    Attributes:
        now: Unix seconds by the clock that all replicas share: the database's, where it is a server.
        told: the rows that were asked for with the turn, for each question.
        late: what is carried out with the end; None where nothing is gained by that.
    """

    connection: Connection
    now: int
    told: Sequence[list[Any]] = ()
    late: list[Question] | None = None

    def rows(self, statement: Any, *parameters: Any) -> list[Any]:
        """What a statement finds."""
        return list(self.connection.execute(statement, *parameters))

    def execute(self, statement: Any, *parameters: Any) -> int:
        """Carry a statement out; the number of rows that it concerned."""
        return self.connection.execute(statement, *parameters).rowcount

    def later(self, statement: Executable, parameters: Mapping[str, Any]) -> None:
        """Carry a statement out that nothing depends on until the end."""
        if self.late is None:
            self.connection.execute(statement, parameters)
        else:
            self.late.append((statement, parameters))


class LoginStore:
    """The store beside a database.

    Args:
        engine: of the books; what is disposed with it is ours, too.
        clock: Unix seconds now, of this replica.
    """

    def __init__(self, engine: Engine, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._books = engine
        self._server = engine.dialect.name == "postgresql"
        self._making = Lock()
        self._turns = Turns()
        self._made: Engine | None = None

    @contextmanager
    def writing(self, *questions: Question) -> Iterator[Moment]:
        """A transaction of the only one who changes leases: all of it is stored or nothing.

        Args:
            questions: asked with the turn, and answered in `told`.

        Raises:
            UnreachableError: the database does not answer.
        """
        with self.writing_for(lambda: questions) as moment:
            yield moment

    @contextmanager
    def writing_for(self, ask: Callable[[], Sequence[Question]]) -> Iterator[Moment]:
        """As `writing`, of questions that are known only once it is our turn.

        Raises:
            UnreachableError: the database does not answer.
        """
        loop = in_loop()
        with self._in_thread(ask) if loop is None else self._in_loop(loop, ask) as moment:
            yield moment

    @contextmanager
    def _in_thread(self, ask: Callable[[], Sequence[Question]]) -> Iterator[Moment]:
        engine = self._engine().execution_options(writes=True)
        # Those of one process queue up here: SQLite would have them sleep and try again.
        with (
            self._turns.one(_WAIT_MS / 1000),
            reachable(),
            engine.connect() as connection,
            connection.begin(),
        ):
            ahead = _ahead(connection, _TURN, _TURN_OF) if self._server else 0.0
            told = [list(connection.execute(statement, given)) for statement, given in ask()]
            yield Moment(connection, self._clock() + round(ahead), told)

    @contextmanager
    def _in_loop(self, loop: InLoop, ask: Callable[[], Sequence[Question]]) -> Iterator[Moment]:
        """The same on two ways to the server and back: those who wait for the turn wait for each of them."""
        late: list[Question] = []
        with loop.turn(_WAIT_MS / 1000), reachable(), here_to_look(self._engine()).connect() as connection:
            try:
                begin: list[Question | Plain] = [("BEGIN", {}), (_TURN, _TURN_OF), *ask()]
                before = time.time()
                _, ((*_, clock),), *told = told_together(connection, begin)
                yield Moment(connection, self._clock() + round(_leads(clock, before)), told, late)
                told_together(connection, [*late, ("COMMIT", {})])
            except BaseException:
                # Whatever it was at, the server undoes it.
                connection.invalidate()
                raise

    @contextmanager
    def reading(self) -> Iterator[Moment]:
        """What is so now.

        Raises:
            UnreachableError: the database does not answer.
        """
        with reachable(), here(self._engine()).connect() as connection, connection.begin():
            ahead = _ahead(connection, _CLOCK) if self._server else 0.0
            yield Moment(connection, self._clock() + round(ahead))

    def answers_at_once(self) -> bool:
        """Whether nothing is waited for: the store is a file, and nobody is at work on it."""
        return not self._server and self._turns.free()

    def _engine(self) -> Engine:
        with self._making:
            if self._made is None:
                self._made = self._books if self._server else _beside(self._books)
            return self._made


_CLOCK = "SELECT extract(epoch from clock_timestamp())::float8"
# One question, since each takes a way to the server and back. Limits hold from where they are set on.
_TURN = (
    "SELECT set_config('lock_timeout', %(ms)s, true) AS waits,"
    " set_config('synchronous_commit', 'off', true) AS hurry,"
    " pg_advisory_xact_lock(%(lock)s) AS turn, extract(epoch from clock_timestamp())::float8 AS clock"
)
_TURN_OF = {"ms": str(_WAIT_MS), "lock": _LOCK}


def _ahead(connection: Connection, question: str, parameters: dict[str, object] | None = None) -> float:
    """By how many seconds the server's clock is ahead of ours at least, as the last column says it."""
    before = time.time()
    row = connection.exec_driver_sql(question, parameters).one()
    return _leads(float(row[-1]), before)


def _leads(clock: float, before: float) -> float:
    """By how much a clock leads that was read between `before` and now.

    The answer may have been long on its way: a time between question and answer is our own.
    """
    return max(0.0, clock - time.time()) + min(0.0, clock - before)


def _beside(engine: Engine) -> Engine:
    """The engine of a SQLite file of our own; it is disposed with the other one."""
    path = engine.url.database
    memory = not path or path == ":memory:"
    store = connect("sqlite://" if memory else f"sqlite:///{path}.login")
    event.listen(store, "connect", _unhurried)
    event.listen(engine, "engine_disposed", lambda _: store.dispose())
    with reachable(), store.connect().execution_options(writes=True) as connection, connection.begin():
        _make(connection)
    return store


def _unhurried(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA synchronous=NORMAL").close()
    connection.execute(f"PRAGMA busy_timeout={_WAIT_MS}").close()


def _make(connection: Connection) -> None:
    """The tables; those of another release are made anew, since all that is in them is told again."""
    tables = [NODES, LEASES, ADMINISTRATORS, FORMER]
    known = {t.name: connection.exec_driver_sql(f"PRAGMA table_info({t.name})").all() for t in tables}
    made = connection.exec_driver_sql(f"SELECT sql FROM sqlite_master WHERE name = '{LEASES.name}'").scalar()  # noqa: S608
    is_old = any([row[1] for row in known[t.name]] != [c.name for c in t.columns] for t in tables)
    if is_old or "AUTOINCREMENT" not in str(made):
        Base.metadata.drop_all(connection, tables=tables)
        Base.metadata.create_all(connection, tables=tables)
