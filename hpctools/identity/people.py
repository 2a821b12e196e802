"""Who of a directory's people may be somebody on the cluster: pure. The directory is believed in nothing.

Names end up in sacctmgr's arguments and numbers in the kernel. A name that is no plain Unix account, a number
of the machine's own, one number for two names: whoever has it is refused, and the rest of the group goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from hpctools.identity.ldif import Entry
from hpctools.identity.reading import Reading
from hpctools.site.identity import MACHINE_ACCOUNTS, Identity
from hpctools.site.scalars import UserName

_USER_NAME: TypeAdapter[str] = TypeAdapter(UserName)
_MOST = 4_294_967_293  # the two numbers above it mean "nobody" and "leave as it is" (chown(2))
_OVERFLOW = 65_534  # nobody's number on Linux, which root gets on a file system that does not trust it


@dataclass(frozen=True)
class Refusal:
    """Somebody in a group who is nobody here.

    Attributes:
        group: the group.
        who: as the directory calls them, harmless to a terminal.
        why: the reason.
    """

    group: str
    who: str
    why: str


@dataclass(frozen=True)
class GroupPeople:
    """The people of a group.

    Attributes:
        group: its name.
        found: how many groups have the name.
        users: Unix accounts, sorted, each once.
        refused: those who are none.
    """

    group: str
    found: int
    users: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()


def judge(identity: Identity, readings: Sequence[Reading]) -> tuple[GroupPeople, ...]:
    """Tell who of the people in groups may be somebody here."""
    shared = _shared_numbers(identity, readings)
    return tuple(_judged(identity, reading, shared) for reading in readings)


def _judged(identity: Identity, reading: Reading, shared: dict[str, str]) -> GroupPeople:
    users: set[str] = set()
    refused = [Refusal(reading.group, _shown(name), "no person has this name") for name in reading.nobody]
    for entry in reading.people:
        why = _objection(identity, entry, shared)
        if why:
            refused.append(Refusal(reading.group, _shown(entry.dn), why))
        else:
            users.add(_name(identity, entry))
    return GroupPeople(reading.group, reading.found, tuple(sorted(users)), tuple(refused))


def _names(identity: Identity, entry: Entry) -> tuple[str, ...]:
    return entry.values("sAMAccountName" if identity.directory == "ad" else "uid")


def _name(identity: Identity, entry: Entry) -> str:
    """The Unix account: Active Directory's names are the same in any case, and sssd makes them lower."""
    name = _names(identity, entry)[0]
    return name.lower() if identity.directory == "ad" else name


def _objection(identity: Identity, entry: Entry, shared: dict[str, str]) -> str:
    names = _names(identity, entry)
    if len(names) != 1:
        return f"{len(names)} names, and a Unix account has one"
    name = _name(identity, entry)
    try:
        _USER_NAME.validate_python(name)
    except ValidationError:
        return f"{_shown(name)} is no Unix account: lower-case letters, digits, '.', '-' and '_', at most 32"
    if name in MACHINE_ACCOUNTS:
        return f"{name} is an account of the machines"
    return shared.get(name, "") or (
        _number_objection(identity, entry) if identity.numbers_in_directory else ""
    )


def _number_objection(identity: Identity, entry: Entry) -> str:
    numbers = entry.values("uidNumber")
    if len(numbers) != 1 or not (numbers[0].isascii() and numbers[0].isdigit()):
        return "no uid number"
    number = int(numbers[0][:20])
    if not identity.first_id <= number <= _MOST or number == _OVERFLOW:
        return f"the uid {number} is one of the machines' own (people have {identity.first_id} and above)"
    return ""


def _shared_numbers(identity: Identity, readings: Iterable[Reading]) -> dict[str, str]:
    """Names that are not alone with their number: to the kernel they are one person."""
    if not identity.numbers_in_directory:
        return {}
    holders: dict[str, set[str]] = defaultdict(set)
    for entry in (entry for reading in readings for entry in reading.people):
        for number in entry.values("uidNumber"):
            holders[number.lstrip("0")] |= {_shown(name) for name in _names(identity, entry)}
    return dict(_shared(holders))


def _shared(holders: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    for number, names in holders.items():
        if len(names) > 1:
            for name in names:
                yield name, f"the uid {_shown(number)} has several names: {', '.join(sorted(names))}"


def _shown(text: str) -> str:
    """A text that does nothing to a terminal and does not fill it."""
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain if len(plain) <= 120 else plain[:117] + "..."
