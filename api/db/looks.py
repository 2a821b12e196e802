"""Short questions to the database: single queries, each of which sees what is stored by then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine

from api.db.engine import reachable
from api.db.in_loop import here_to_look, in_loop

Value = TypeVar("Value")


@contextmanager
def looking(engine: Engine) -> Iterator[Connection]:
    """A connection for single queries, each of which sees what is stored by then: no transaction is begun.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reachable():
        shared = _LOOKS.get()
        if shared is not None:
            yield shared.connection(engine)
            return
        with _look(engine) as connection:
            yield connection


@contextmanager
def looks_together() -> Iterator[None]:
    """Within it, `looking` gets the same connection each time: to get one takes as long as a short query.

    For one thread, and for what ends soon: the connection is kept until the end.
    """
    with ExitStack() as stack:
        mark = _LOOKS.set(_Looks(stack))
        try:
            yield
        finally:
            _LOOKS.reset(mark)


class Noted(Generic[Value]):
    """What a query answered besides, for who asks for it later within the same `looks_together`."""

    def of(self, engine: Engine) -> Value | None:
        """What was kept of a database; None when nothing was."""
        shared = _LOOKS.get()
        return None if shared is None else shared.noted.get((self, engine))

    def keep(self, engine: Engine, value: Value) -> None:
        """Keep it until the end of the question."""
        shared = _LOOKS.get()
        if shared is not None:
            shared.noted[self, engine] = value


class _Looks:
    """The connections of one question; they are given back when `stack` is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._connections: dict[Engine, Connection] = {}
        self.noted: dict[tuple[Noted[Any], Engine], Any] = {}

    def connection(self, engine: Engine) -> Connection:
        if engine not in self._connections:
            self._connections[engine] = self._stack.enter_context(_look(engine))
        return self._connections[engine]


_LOOKS: ContextVar[_Looks | None] = ContextVar("hpctools_looks", default=None)


def _look(engine: Engine) -> Connection:
    connection = here_to_look(engine).connect()
    if in_loop() is not None:
        return connection
    if engine.dialect.name == "postgresql":
        return connection.execution_options(isolation_level="AUTOCOMMIT")
    return connection.execution_options(looks=True)
