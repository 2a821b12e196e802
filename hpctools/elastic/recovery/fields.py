"""Reading a mapping strictly: every key known, every value of its kind, all problems told at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any


class Fields:
    """One mapping of a policy; what is wrong with it goes into `problems`.

    Args:
        path: where it stands, for example `runPolicy.restartPolicy`; "" for the whole.
        known: keys that it may have.
        foreign: keys that others know, with what to do instead.
    """

    def __init__(
        self,
        values: object,
        path: str,
        problems: list[str],
        known: Sequence[str],
        foreign: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self.problems = problems
        self._values: Mapping[Any, Any] = {}
        if not isinstance(values, Mapping):
            self._complain(path or "the policy", f"{values!r} is no mapping", "write `name: value` lines")
            return
        self._values = values
        for key in values:
            if key not in known:
                self._unknown(str(key), known, foreign or {})

    def has(self, key: str) -> bool:
        """Whether the key stands there with a value."""
        return self._values.get(key) is not None

    def value(self, key: str) -> Any:
        """The value as it is; None when there is none."""
        return self._values.get(key)

    def number(
        self, key: str, default: float, *, least: float | None = None, above: float | None = 0
    ) -> float:
        """A finite number, above `above` or at least `least`."""
        value = self._values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.wrong(key, f"{value!r} is no finite number", "give one, for example 2.5")
        elif least is not None and value < least:
            self.wrong(key, f"{value!r} is too small", f"give {least:g} or more")
        elif least is None and above is not None and value <= above:
            self.wrong(key, f"{value!r} is too small", f"give more than {above:g}")
        else:
            return float(value)
        return default

    def maybe(self, key: str, *, above: float | None = 0) -> float | None:
        """A finite number, or None when the key is not there."""
        return self.number(key, 1.0, above=above) if self.has(key) else None

    def count(self, key: str, default: int, *, least: int = 1) -> int:
        """A whole number, at least `least`."""
        value = self._values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(key, f"{value!r} is no whole number", f"give {least} or more")
        elif value < least:
            self.wrong(key, f"{value} is too small", f"give {least} or more")
        else:
            return value
        return default

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._values.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(key, f"{value!r} is neither true nor false", "give true or false")
        return default

    def text(self, key: str, default: str = "") -> str:
        """A text that is not empty; `default` when it is not there and the default is not empty."""
        value = self._values.get(key)
        if value is None and default:
            return default
        if isinstance(value, str) and value:
            return value
        self.wrong(key, "is missing" if value is None else f"{value!r} is no text", "give a text")
        return default

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        """One of a few words."""
        value = self._values.get(key, default)
        if value in choices:
            return str(value)
        self.wrong(key, f"{value!r} is not known", f"give one of {', '.join(choices)}")
        return default

    def words(
        self, key: str, default: tuple[str, ...], choices: Sequence[str] | None = None
    ) -> tuple[str, ...]:
        """A list of texts that is not empty, each of them one of `choices`."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            self.wrong(key, f"{value!r} is no list", "write [one, other]")
            return default
        for word in value:
            if not isinstance(word, str) or (choices is not None and word not in choices):
                self.wrong(key, f"{word!r} is not known", f"use {', '.join(choices or ('texts',))}")
                return default
        return tuple(value)

    def wrong(self, key: str, what: str, remedy: str) -> None:
        """Note that a key's value is wrong."""
        self._complain(f"{self.path}.{key}" if self.path else key, what, remedy)

    def _unknown(self, key: str, known: Sequence[str], foreign: Mapping[str, str]) -> None:
        near = difflib.get_close_matches(key, known, 1)
        remedy = foreign.get(key) or (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
        self.wrong(key if key.isprintable() else repr(key), "is not known here", remedy)

    def _complain(self, where: str, what: str, remedy: str) -> None:
        self.problems.append(f"{where}: {what}; {remedy}")
