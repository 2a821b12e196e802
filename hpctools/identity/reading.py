"""Who is in the groups of a directory, as it says so: each schema has its own way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpctools.identity.filters import any_of, batches, both, equals
from hpctools.identity.ldapsearch import Directory
from hpctools.identity.ldif import Entry
from hpctools.site.identity import Identity

_PERSON = ("uid", "sAMAccountName", "uidNumber", "objectClass")
_GROUP = ("cn", "gidNumber", "memberUid", "member", "uniqueMember", "objectClass")
_GROUP_CLASSES = frozenset({"posixgroup", "groupofnames", "groupofuniquenames", "group", "groupofmembers"})
_IN_CHAIN = "1.2.840.113556.1.4.1941"
"""Active Directory's LDAP_MATCHING_RULE_IN_CHAIN: in a group, or in one that is in it."""


@dataclass(frozen=True)
class Reading:
    """What a directory says of one group.

    Attributes:
        group: its name.
        found: how many groups have the name; anything but 1 is trouble.
        people: the entries of its people.
        nobody: names and distinguished names in it that no entry of a person has.
    """

    group: str
    found: int
    people: tuple[Entry, ...] = ()
    nobody: tuple[str, ...] = ()


def read_groups(identity: Identity, groups: Iterable[str], directory: Directory) -> tuple[Reading, ...]:
    """Read groups.

    Raises:
        UnreachableError: the directory does not tell all of it.
    """
    return tuple(_Reader(identity, directory).read(group) for group in groups)


@dataclass(frozen=True)
class _Reader:
    identity: Identity
    directory: Directory

    def read(self, group: str) -> Reading:
        found = [each for each in self._groups(equals("cn", group)) if _is_group(each)]
        if len(found) != 1:
            return Reading(group, len(found))
        if self.identity.directory == "ad":
            return Reading(group, 1, self._in_chain(found[0]))
        if self.identity.ldap_schema == "rfc2307bis":
            people, nobody = self._by_dn(found[0])
        else:
            people, nobody = self._by_name(found[0])
        return Reading(group, 1, _distinct([*people, *self._by_number(found[0])]), nobody)

    def _groups(self, asked: str) -> tuple[Entry, ...]:
        return self.directory.search(self.identity.group_base or self.identity.base, asked, _GROUP)

    def _people(self, asked: str) -> tuple[Entry, ...]:
        return self.directory.search(self.identity.user_base or self.identity.base, asked, _PERSON)

    def _in_chain(self, group: Entry) -> tuple[Entry, ...]:
        people = both("(objectClass=user)", "(!(objectClass=computer))")
        return self._people(both(people, equals(f"memberOf:{_IN_CHAIN}:", group.dn)))

    def _by_number(self, group: Entry) -> tuple[Entry, ...]:
        """People whose primary group it is are in it without being named."""
        numbers = group.values("gidNumber")
        if not numbers:
            return ()
        return self._people(both("(objectClass=posixAccount)", any_of("gidNumber", numbers)))

    def _by_name(self, group: Entry) -> tuple[list[Entry], tuple[str, ...]]:
        names = group.values("memberUid")
        found: list[Entry] = []
        for some in batches(names):
            found += self._people(both("(objectClass=posixAccount)", any_of("uid", some)))
        known = {name.lower() for each in found for name in each.values("uid")}
        return found, tuple(name for name in names if name.lower() not in known)

    def _by_dn(self, group: Entry) -> tuple[list[Entry], tuple[str, ...]]:
        """People and groups that it names, the people of those groups, and so on; circles end."""
        people: list[Entry] = []
        nobody: list[str] = []
        seen = {_key(group.dn)}
        waiting = _members(group)
        while waiting:
            new = [dn for dn in dict.fromkeys(waiting) if _key(dn) not in seen]
            seen |= {_key(dn) for dn in new}
            entries = self._entries(new)
            known = {_key(each.dn) for each in entries}
            nobody += [dn for dn in new if _key(dn) not in known]
            people += [each for each in entries if not _is_group(each)]
            waiting = [dn for each in entries if _is_group(each) for dn in _members(each)]
        return people, tuple(nobody)

    def _entries(self, names: Sequence[str]) -> list[Entry]:
        attributes = tuple(dict.fromkeys((*_PERSON, *_GROUP)))
        found: list[Entry] = []
        for some in batches(names):
            found += self.directory.search(self.identity.base, any_of("entryDN", some), attributes)
        return found


def _is_group(entry: Entry) -> bool:
    return any(name.lower() in _GROUP_CLASSES for name in entry.values("objectClass"))


def _members(group: Entry) -> list[str]:
    return [*group.values("member"), *group.values("uniqueMember")]


def _key(dn: str) -> str:
    """Distinguished names without what they may differ in and be the same."""
    return ",".join(part.strip() for part in dn.lower().split(","))


def _distinct(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple({_key(each.dn): each for each in entries}.values())
