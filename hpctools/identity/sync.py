"""From what was known of the groups, and what the directory says now, to what is to be known: pure.

Who joins, joins. Who leaves, leaves, unless it looks like a directory that is broken: a group that is gone,
that is suddenly empty, or that loses many at once stays as it was until a person agrees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hpctools.identity.people import GroupPeople, Refusal

Groups = Mapping[str, tuple[str, ...]]

_FEW = 2
"""So many may always leave a group at once, when somebody stays."""


@dataclass(frozen=True)
class GroupChange:
    """What becomes of one group.

    Attributes:
        group: its name.
        users: who is in it from now on; None while nothing is known of it.
        joined, left: who comes and goes.
        kept: who stays though the directory does not name them, because of `why`.
        why: why the group is not as the directory says; "" when it is.
    """

    group: str
    users: tuple[str, ...] | None
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Sync:
    """What becomes of all groups.

    Attributes:
        changes: one for each group, in the site's order.
        refused: people of the directory who are nobody here.
    """

    changes: tuple[GroupChange, ...]
    refused: tuple[Refusal, ...] = ()

    @property
    def groups(self) -> Groups:
        """The people of each group that is known."""
        return {each.group: each.users for each in self.changes if each.users is not None}

    @property
    def problems(self) -> int:
        """How much a person should look at."""
        return len(self.refused) + sum(1 for each in self.changes if each.why)


def synchronize(
    before: Groups, people: Sequence[GroupPeople], *, percent: int, accepted: Collection[str] = ()
) -> Sync:
    """Return what becomes of the groups.

    Args:
        before: the people of each group as of the last time.
        people: what the directory says now.
        percent: when more than this share would leave a group, or all groups together, they stay.
        accepted: groups from which any number may leave: a person has looked.
    """
    judged = [_change(before, each, percent, each.group in accepted) for each in people]
    doubt = _doubt(before, judged, percent, accepted)
    changes = [_kept(before, each, doubt) if doubt and _counts(each, accepted) else each for each in judged]
    return Sync(tuple(changes), tuple(refusal for each in people for refusal in each.refused))


def _counts(change: GroupChange, accepted: Collection[str]) -> bool:
    return bool(change.left) and change.group not in accepted


def _change(before: Groups, now: GroupPeople, percent: int, agreed: bool) -> GroupChange:
    old, new = before.get(now.group, ()), now.users
    change = GroupChange(now.group, new, _without(new, old), _without(old, new))
    if now.found > 1:
        return _kept(before, change, f"{now.found} groups of the directory have this name")
    if now.found == 0 and not agreed:
        return _kept(before, change, "the directory has no such group")
    if agreed or (now.group in before and not change.left):
        return change
    if not new:
        return _kept(before, change, f"it is empty now, and had {len(old)}" if old else "it is empty")
    if len(change.left) > _FEW and len(change.left) * 100 > percent * len(old):
        return _kept(before, change, f"{len(change.left)} of {len(old)} would leave at once")
    return change


def _kept(before: Groups, change: GroupChange, why: str) -> GroupChange:
    """The group as it was; one that is new to us stays unknown, so that nobody is taken from its account."""
    return GroupChange(change.group, before.get(change.group), kept=change.left, why=why)


def _doubt(before: Groups, changes: Sequence[GroupChange], percent: int, accepted: Collection[str]) -> str:
    """Many small groups that each lose few are a broken directory, too."""
    leaving = sum(len(each.left) for each in changes if _counts(each, accepted))
    known = sum(len(before.get(each.group, ())) for each in changes)
    if leaving > _FEW and leaving * 100 > percent * known:
        return f"{leaving} of {known} would leave all groups together"
    return ""


def _without(some: Sequence[str], others: Collection[str]) -> tuple[str, ...]:
    known = set(others)
    return tuple(name for name in some if name not in known)
