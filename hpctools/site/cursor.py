"""A tolerant view of a document: rules walk it without minding parts of a wrong type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpctools.site.document import Document
from hpctools.site.findings import Finding, Location, spell_value


@dataclass(frozen=True)
class Cursor:
    """A place in a document and what stands there (None where nothing does)."""

    document: Document
    value: object
    location: Location = ()

    def at(self, *keys: str) -> Cursor:
        """Go down by keys; a place that does not exist has the value None."""
        place = self
        for key in keys:
            value = place.value.get(key) if isinstance(place.value, dict) else None
            place = Cursor(self.document, value, (*place.location, key))
        return place

    def each(self) -> Iterator[Cursor]:
        """Visit the items of a list, or the values of a mapping; nothing for other values."""
        if isinstance(self.value, dict):
            for key, value in self.value.items():
                yield Cursor(self.document, value, (*self.location, key))
        elif isinstance(self.value, tuple):
            for index, value in enumerate(self.value):
                yield Cursor(self.document, value, (*self.location, index))

    @property
    def text(self) -> str | None:
        """The text that stands here; None when it is something else."""
        return self.value if isinstance(self.value, str) else None

    @property
    def key(self) -> str:
        """The last step of the location."""
        return str(self.location[-1])

    def finding(self, expected: str, found: str | None = None) -> Finding:
        """Make a finding about this place."""
        return self.document.finding(self.location, found or spell_value(self.value), expected)
