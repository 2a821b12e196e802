"""What is worked out once: values that do not change, kept in memory by store and key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Engine

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Values by key, the ones used last.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key; made when it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
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
