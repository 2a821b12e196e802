"""A JSON file of HyperPod's: how it is read, and a tolerant view that rules walk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpctools.errors import UsageError
from hpctools.hyperpod.findings import Finding, Location, Severity, spell, spell_pointer
from hpctools.hyperpod.json_text import BROKEN, Broken, parse

LARGEST = 1024 * 1024
"""Bytes. 100 instance groups with everything that CreateCluster takes are some 200 KB."""


class Missing:
    """Stands for what a document does not say; null is something else."""

    def __bool__(self) -> bool:
        return False


MISSING = Missing()


@dataclass(frozen=True)
class Document:
    """A JSON document that knows its lines.

    Attributes:
        file: the file's path as it was given.
        data: what it says; `BROKEN` when it is no JSON.
        lines: the line of each location.
    """

    file: str
    data: object
    lines: Mapping[Location, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def root(self) -> Place:
        """The whole document."""
        return Place(self, self.data)

    def finding(
        self, location: Location, rule: str, found: str, remedy: str, severity: Severity = "error"
    ) -> Finding:
        """Make a finding about a location; its line is that of the nearest thing around it."""
        near = location
        while near and near not in self.lines:
            near = near[:-1]
        line = self.lines.get(near, 0)
        return Finding(self.file, line, spell_pointer(location), rule, found, remedy, severity)


@dataclass(frozen=True)
class Place:
    """A place in a document and what stands there (`MISSING` where nothing does)."""

    document: Document
    value: object
    location: Location = ()

    def at(self, *keys: str) -> Place:
        """Go down by keys."""
        place = self
        for key in keys:
            value = place.value.get(key, MISSING) if isinstance(place.value, dict) else MISSING
            place = Place(self.document, value, (*place.location, key))
        return place

    def each(self) -> Iterator[Place]:
        """Visit the items of a list; nothing for other values."""
        if isinstance(self.value, list):
            for index, value in enumerate(self.value):
                yield Place(self.document, value, (*self.location, index))

    @property
    def exists(self) -> bool:
        """Whether something stands here, null included."""
        return not isinstance(self.value, Missing)

    @property
    def readable(self) -> bool:
        """Whether what stands here could be read."""
        return not isinstance(self.value, Broken)

    @property
    def text(self) -> str | None:
        """The text that stands here; None when it is something else."""
        return self.value if isinstance(self.value, str) else None

    @property
    def number(self) -> int | None:
        """The whole number that stands here; None when it is something else."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of an object; none for other values."""
        return tuple(self.value) if isinstance(self.value, dict) else ()

    def finding(
        self, rule: str, remedy: str, found: str | None = None, severity: Severity = "error"
    ) -> Finding:
        """Make a finding about this place."""
        return self.document.finding(self.location, rule, found or spell(self.value), remedy, severity)

    def warning(self, rule: str, remedy: str, found: str | None = None) -> Finding:
        """Make a finding about this place that people should see and that fails nothing."""
        return self.finding(rule, remedy, found, "warning")


def read(path: Path) -> tuple[Document, tuple[Finding, ...]]:
    """Read a file.

    Returns:
        The document, and everything that is wrong with the text itself. What cannot be read at all is a
        finding too, of a document that is `BROKEN`.

    Raises:
        UsageError: there is no such file.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{file}: there is no such file", "name a file that is there") from None
    except OSError as error:
        found = f"cannot be read: {(error.strerror or str(error)).lower()}"
        return _unreadable(file, found, "name a file that you may read")
    return of_bytes(content, file)


def of_bytes(content: bytes, file: str) -> tuple[Document, tuple[Finding, ...]]:
    """Read a file's content; likewise."""
    if len(content) > LARGEST:
        return _unreadable(file, "more than 1 MiB", "name a cluster's file; none is that large")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _unreadable(file, "UTF-16", "save it as UTF-8")
    found: list[Finding] = []
    if content.startswith(b"\xef\xbb\xbf"):
        remedy = "save it without one: the AWS CLI refuses it"
        found.append(Finding(file, 1, "", "byte-order-mark", "a byte order mark", remedy))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _unreadable(file, f"bytes that are not UTF-8 at offset {error.start}", "save it as UTF-8")
    if not text.strip():
        return _unreadable(file, "an empty file", "name one with a cluster in it")
    parsed = parse(text)
    document = Document(file, parsed.data, parsed.lines)
    for fault in parsed.faults:
        pointer = spell_pointer(fault.location)
        found.append(Finding(file, fault.line, pointer, fault.rule, fault.found, fault.remedy))
    return document, tuple(found)


def _unreadable(file: str, found: str, remedy: str) -> tuple[Document, tuple[Finding, ...]]:
    return Document(file, BROKEN), (Finding(file, 0, "", "unreadable", found, remedy),)
