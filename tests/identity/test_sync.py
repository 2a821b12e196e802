"""What becomes of the groups: nobody goes because of a directory that is broken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpctools.identity.people import GroupPeople, Refusal
from hpctools.identity.sync import GroupChange, synchronize
from hpctools.site.members import parse_members, spell_members

TEN = tuple(f"u{number}" for number in range(10))

USERS = st.sets(st.sampled_from(TEN)).map(lambda names: tuple(sorted(names)))
GROUPS = st.sampled_from(["a", "b", "c"])
KNOWN = st.dictionaries(GROUPS, USERS)


def people(users: dict[str, tuple[str, ...]]) -> list[GroupPeople]:
    return [GroupPeople(group, 1, names) for group, names in users.items()]


def change(
    before: dict[str, tuple[str, ...]], now: GroupPeople, accepted: tuple[str, ...] = ()
) -> GroupChange:
    [found] = synchronize(before, [now], percent=20, accepted=accepted).changes
    return found


def test_who_joins_and_who_leaves() -> None:
    assert change({"a": TEN}, GroupPeople("a", 1, (*TEN[1:], "new"))) == GroupChange(
        "a", (*TEN[1:], "new"), joined=("new",), left=("u0",)
    )


def test_a_few_may_always_leave_a_group() -> None:
    assert change({"a": ("x", "y", "z")}, GroupPeople("a", 1, ("x",))).users == ("x",)


def test_many_at_once_may_not() -> None:
    assert change({"a": TEN}, GroupPeople("a", 1, TEN[3:])) == GroupChange(
        "a", TEN, kept=("u0", "u1", "u2"), why="3 of 10 would leave at once"
    )


def test_a_group_that_is_empty_all_at_once_may_not_be() -> None:
    assert change({"a": ("x",)}, GroupPeople("a", 1)).why == "it is empty now, and had 1"
    assert change({"a": ("x",)}, GroupPeople("a", 1)).users == ("x",)


def test_a_group_that_has_always_been_empty_may_stay_so() -> None:
    assert change({"a": ()}, GroupPeople("a", 1)) == GroupChange("a", ())


def test_a_group_that_is_new_to_us_and_empty_stays_unknown_until_somebody_agrees() -> None:
    """Whoever is in its account by other ways would be pruned."""
    assert change({}, GroupPeople("a", 1)) == GroupChange("a", None, why="it is empty")
    assert change({}, GroupPeople("a", 1), ("a",)) == GroupChange("a", ())


def test_a_group_that_is_gone_stays_until_somebody_agrees() -> None:
    assert change({"a": ("x",)}, GroupPeople("a", 0)) == GroupChange(
        "a", ("x",), kept=("x",), why="the directory has no such group"
    )
    assert change({"a": ("x",)}, GroupPeople("a", 0), ("a",)) == GroupChange("a", (), left=("x",))


def test_two_groups_of_one_name_are_none_whoever_agrees() -> None:
    found = change({"a": ("x",)}, GroupPeople("a", 2), ("a",))
    assert (found.users, found.why) == (("x",), "2 groups of the directory have this name")


def test_many_small_groups_that_lose_few_each_are_many() -> None:
    before = {f"g{number}": (f"a{number}", f"b{number}") for number in range(5)}
    now = [GroupPeople(group, 1, names[:1]) for group, names in before.items()]
    found = synchronize(before, now, percent=20)
    assert found.groups == before
    assert {each.why for each in found.changes} == {"5 of 10 would leave all groups together"}
    agreed = synchronize(before, now, percent=20, accepted=["g0", "g1", "g2"])
    assert agreed.groups == {group: names[:1] for group, names in before.items()}


def test_refusals_are_told_and_count() -> None:
    refusal = Refusal("a", "uid=root", "no")
    found = synchronize({"a": ("x",)}, [GroupPeople("a", 1, ("x",), (refusal,))], percent=20)
    assert (found.refused, found.problems) == ((refusal,), 1)


@given(KNOWN, KNOWN, st.integers(0, 100), st.sets(GROUPS))
def test_whoever_goes_was_agreed_to_or_is_one_of_few(
    before: dict[str, tuple[str, ...]], now: dict[str, tuple[str, ...]], percent: int, accepted: set[str]
) -> None:
    found = synchronize(before, people(now), percent=percent, accepted=accepted)
    gone = 0
    for each in found.changes:
        old, new = set(before.get(each.group, ())), set(each.users or ())
        assert new in (old, set(now[each.group]))
        assert set(each.left) == old - new
        if each.group not in accepted:
            gone += len(old - new)
            assert new or not old
            assert len(old - new) <= 2 or len(old - new) * 100 <= percent * len(old)
    assert gone <= 2 or gone * 100 <= percent * sum(len(before.get(group, ())) for group in now)


@given(KNOWN)
def test_a_second_time_nothing_changes(groups: dict[str, tuple[str, ...]]) -> None:
    found = synchronize(groups, people(groups), percent=0)
    assert (found.groups, found.problems) == (groups, 0)
    assert not [each for each in found.changes if each.joined or each.left]


@given(st.dictionaries(st.sampled_from(["1e5", "007", "null", "true", "A b"]), USERS))
def test_the_file_says_what_was_put_into_it(groups: dict[str, tuple[str, ...]]) -> None:
    assert parse_members(spell_members(groups), "members.yaml") == groups
