"""What is worked out once: values that do not change, kept in memory by store and key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Engine

from api.db.in_loop import takes_long

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Values by key, the ones used last.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._being_made: dict[Hashable, Future[Value]] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key; made when it is not there.

        Of many threads that want the same at once one makes it, and the others wait for it: they would only
        take the processors from each other. What it raises is raised in all of them, and nothing is kept.

        Args:
            make: may ask for other keys, never for this one.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            takes_long()
            awaited = self._being_made.get(key)
            mine = self._being_made.setdefault(key, Future())
        return awaited.result() if awaited else self._made(key, make, mine)

    def _made(self, key: Hashable, make: Callable[[], Value], told: Future[Value]) -> Value:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._being_made[key]
            told.set_exception(error)
            raise
        with self._lock:
            del self._being_made[key]
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        told.set_result(value)
        return value


@dataclass(frozen=True, eq=False)
class Same:
    """For keys: equal to what is about the same object only; a site file that is read anew is another."""

    of: object

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.of is self.of


class KeptByStore(Generic[Value]):
    """Something for each store, as long as the store is open.

    Args:
        make: what a store begins with.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._stores: WeakKeyDictionary[Engine, Value] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, engine: Engine) -> Value:
        """What belongs to a store."""
        with self._lock:
            if engine not in self._stores:
                self._stores[engine] = self._make()
            return self._stores[engine]
