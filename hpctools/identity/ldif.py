"""What ldapsearch prints (LDIF, RFC 2849), as data: pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpctools.errors import HpctoolsError


@dataclass(frozen=True)
class Entry:
    """One entry of a directory.

    Attributes:
        dn: its distinguished name.
        attributes: values by attribute in lower case; bytes that are no UTF-8 have replacement characters.
    """

    dn: str
    attributes: Mapping[str, tuple[str, ...]]

    def values(self, name: str) -> tuple[str, ...]:
        """All values of an attribute; none when it has none."""
        return self.attributes.get(name.lower(), ())


def parse_ldif(text: str) -> tuple[Entry, ...]:
    """Parse the entries of `ldapsearch -LLL -o ldif-wrap=no`; references to other servers are left out.

    Raises:
        HpctoolsError: a line is none of LDIF's.
    """
    found = []
    for block in _blocks(text):
        pairs = [_pair(line) for line in block]
        if pairs[0][0] == "dn":
            attributes: dict[str, tuple[str, ...]] = {}
            for name, value in pairs[1:]:
                attributes[name] = (*attributes.get(name, ()), value)
            found.append(Entry(pairs[0][1], attributes))
    return tuple(found)


def _blocks(text: str) -> Iterator[list[str]]:
    """Only line feeds separate lines: other separators of Unicode may stand in a value."""
    block: list[str] = []
    for line in text.split("\n"):
        if line.startswith("#"):
            continue
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _pair(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name[0].isspace():
        raise HpctoolsError(f"the directory's answer is no LDIF: {line[:80]!r}", "is ldapsearch OpenLDAP's?")
    name, _, option = name.lower().partition(";")
    if option.startswith("range="):
        raise HpctoolsError(
            f"the directory told only a part of {name!r}", "Active Directory? say `directory: ad`"
        )
    if not value.startswith(":"):
        return name, value.removeprefix(" ")
    try:
        return name, base64.b64decode(value[1:].strip(), validate=True).decode("utf-8", "replace")
    except binascii.Error:
        raise HpctoolsError(f"the directory's answer is no LDIF: {line[:80]!r}") from None
