"""JSON with a memory of where things stood, which tells everything that other parsers pass over in silence.

A key that stands twice, NaN, half a surrogate pair and numbers of thousands of digits are faults here; what
is no JSON at all is one fault with its line, since nothing behind it can be trusted.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder

from hpctools.hyperpod.findings import Location

_DEEPEST = 60
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_LONGEST_NUMBER = 400
_DECODER = JSONDecoder()
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


class Broken:
    """Stands where a value could not be read; checks pass it over, since its fault is told."""


BROKEN = Broken()


@dataclass(frozen=True)
class Fault:
    """Something that is no proper JSON.

    Attributes:
        line: counted from 1.
        location: where in the document.
        rule: `not-json`, `duplicate-key` or `not-a-value`.
        found: what stands there.
        remedy: what to do about it.
    """

    line: int
    location: Location
    rule: str
    found: str
    remedy: str


@dataclass(frozen=True)
class JsonText:
    """What a text says.

    Attributes:
        data: the value; `BROKEN` when the text is no JSON. Of a key that stands twice the last value counts.
        lines: the line of each location.
        faults: everything that is wrong with the text itself.
    """

    data: object
    lines: Mapping[Location, int]
    faults: tuple[Fault, ...]


def parse(text: str) -> JsonText:
    """Parse a text."""
    reader = _Reader(text)
    try:
        data = reader.document()
    except _NotJson as error:
        data = BROKEN
        reader.faults.append(Fault(reader.line(error.at), (), "not-json", error.found, error.remedy))
    return JsonText(data, reader.lines, tuple(reader.faults))


class _NotJson(Exception):
    def __init__(self, at: int, found: str, remedy: str) -> None:
        self.at, self.found, self.remedy = at, found, remedy


@dataclass
class _Reader:
    """One pass over a text; `at` is where it is."""

    text: str
    at: int = 0
    lines: dict[Location, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ends = [match.start() for match in re.finditer("\n", self.text)]

    def line(self, at: int) -> int:
        return bisect.bisect_left(self._ends, at) + 1

    def document(self) -> object:
        value = self._value(())
        self._skip()
        if self.at < len(self.text):
            raise self._refusal("something behind the end of the document")
        return value

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _value(self, location: Location) -> object:
        self._skip()
        self.lines[location] = self.line(self.at)
        if len(location) > _DEEPEST:
            raise _NotJson(self.at, f"values inside each other, {_DEEPEST} deep", "a flatter document")
        start = self.text[self.at : self.at + 1]
        if start == "{":
            return self._object(location)
        if start == "[":
            return self._list(location)
        if start == '"':
            return self._string(location)
        return self._word(location)

    def _object(self, location: Location) -> dict[str, object]:
        found: dict[str, object] = {}
        self.at += 1
        self._skip()
        while self.text[self.at : self.at + 1] != "}":
            key = self._key(location, found)
            found[key] = self._value((*location, key))
            self._next("}")
        self.at += 1
        return found

    def _key(self, location: Location, found: dict[str, object]) -> str:
        start = self.at
        if self.text[start : start + 1] != '"':
            raise self._refusal("no key in double quotes")
        key = self._scan()
        if key in found:
            place = (*location, key)
            text = f"a second {key!a} (the first on line {self.lines[place]})"
            self._fault(start, place, "duplicate-key", text, "keep one of them")
        self._skip()
        if self.text[self.at : self.at + 1] != ":":
            raise self._refusal("no colon behind a key")
        self.at += 1
        return key

    def _list(self, location: Location) -> list[object]:
        found: list[object] = []
        self.at += 1
        self._skip()
        while self.text[self.at : self.at + 1] != "]":
            found.append(self._value((*location, len(found))))
            self._next("]")
        self.at += 1
        return found

    def _next(self, end: str) -> None:
        self._skip()
        here = self.text[self.at : self.at + 1]
        if here == end:
            return
        if here != ",":
            raise self._refusal(f"no comma and no {end!r} behind a value")
        comma = self.at
        self.at += 1
        self._skip()
        if self.text[self.at : self.at + 1] == end:
            raise _NotJson(comma, f"a comma with nothing behind it but {end!r}", "take the comma away")

    def _scan(self) -> str:
        start = self.at
        try:
            value, self.at = _DECODER.raw_decode(self.text, start)
        except JSONDecodeError as error:
            reason = error.msg[0].lower() + error.msg[1:]
            raise _NotJson(error.pos, f"a broken text: {reason}", "close and escape it") from None
        return str(value)

    def _string(self, location: Location) -> object:
        start = self.at
        value = self._scan()
        if any(0xD800 <= ord(letter) <= 0xDFFF for letter in value):
            return self._not_a_value(start, location, "half of a surrogate pair", "a whole letter")
        return value

    def _word(self, location: Location) -> object:
        start = self.at
        for word, value in _WORDS.items():
            if self.text.startswith(word, start):
                self.at += len(word)
                return value
        for word in _NO_NUMBERS:
            if self.text.startswith(word, start):
                self.at += len(word)
                return self._not_a_value(start, location, f"{word}, for which JSON has no word", "a number")
        match = _NUMBER.match(self.text, start)
        if match is None:
            raise self._refusal(
                "no value" if start < len(self.text) else "an end in the middle of the document"
            )
        self.at = match.end()
        if len(match.group()) > _LONGEST_NUMBER:
            return self._not_a_value(
                start, location, f"a number of {len(match.group())} digits", "a smaller one"
            )
        return float(match.group()) if match.group(1) or match.group(2) else int(match.group())

    def _not_a_value(self, at: int, location: Location, found: str, remedy: str) -> Broken:
        self._fault(at, location, "not-a-value", found, f"write {remedy}")
        return BROKEN

    def _fault(self, at: int, location: Location, rule: str, found: str, remedy: str) -> None:
        self.faults.append(Fault(self.line(at), location, rule, found, remedy))

    def _refusal(self, what: str) -> _NotJson:
        rest = self.text[self.at : self.at + 12].split("\n")[0]
        if rest.startswith(("//", "/*", "#")):
            return _NotJson(self.at, "a comment", "take it away: JSON has none")
        if rest.startswith(("$", "<", "{{")):
            remedy = "write the value: nothing replaces it in the file"
            return _NotJson(self.at, f"a placeholder, {rest!a}", remedy)
        if rest.startswith("'"):
            return _NotJson(self.at, "single quotes", "write double quotes")
        column = self.at - (self._ends[self.line(self.at) - 2] if self.line(self.at) > 1 else -1)
        where = f" at column {column}, before {rest!a}" if rest else ""
        return _NotJson(self.at, what + where, "correct the JSON (python3 -m json.tool FILE helps)")
