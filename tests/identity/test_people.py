"""Who of a directory's people may be somebody here."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.identity.ldif import Entry
from hpctools.identity.people import judge
from hpctools.identity.reading import Reading
from hpctools.site.identity import MACHINE_ACCOUNTS, Identity
from tests.identity.sites import site


def identity(**more: object) -> Identity:
    found = site(**more).identity
    assert found is not None
    return found


def entry(*uids: str, number: str | None = "20001", dn: str = "", name: str = "uid") -> Entry:
    numbers = {} if number is None else {"uidnumber": (number,)}
    return Entry(dn or f"uid={uids[0] if uids else ''},dc=x", {name.lower(): uids, **numbers})


def refusal(*people: Entry, **more: object) -> list[str]:
    [found] = judge(identity(**more), [Reading("g", 1, people)])
    assert len(found.users) + len(found.refused) == len(people)
    return [each.why for each in found.refused]


@pytest.mark.parametrize(
    ("given_entry", "why"),
    [
        (entry("root"), "root' is no Unix account"),
        (entry("slurm"), "slurm is an account of the machines"),
        (entry("ubuntu"), "ubuntu is an account of the machines"),
        (entry("Ada"), "'Ada'|Ada is no Unix account"),
        (entry("ada account=root"), "is no Unix account"),
        (entry("a,b"), "is no Unix account"),
        (entry("-i"), "is no Unix account"),
        (entry("x;reboot"), "is no Unix account"),
        (entry("x'y\"z"), "is no Unix account"),
        (entry("ünal"), "is no Unix account"),
        (entry("ada\n"), "is no Unix account"),
        (entry("a" * 33), "is no Unix account"),
        (entry(""), "is no Unix account"),
        (entry(), "0 names"),
        (entry("ada", "root"), "2 names"),
        (entry("ada", number="0"), "the uid 0 is one of the machines' own"),
        (entry("ada", number="999"), "the uid 999 is one"),
        (entry("ada", number="65534"), "the uid 65534 is one"),
        (entry("ada", number="4294967295"), "the uid 4294967295 is one"),
        (entry("ada", number="-1"), "no uid number"),
        (entry("ada", number="²"), "no uid number"),
        (entry("ada", number=None), "no uid number"),
    ],
)
def test_who_is_refused_and_why(given_entry: Entry, why: str) -> None:
    [said] = refusal(given_entry)
    assert re.search(why.replace("root' is", "root is"), said), said


@pytest.mark.parametrize("number", ["1000", "4294967293", "20001"])
def test_ordinary_people_are_taken(number: str) -> None:
    assert refusal(entry("ada.b-c_1", number=number)) == []


def test_numbers_that_sssd_computes_are_not_asked_for_and_names_are_folded() -> None:
    [found] = judge(
        identity(directory="ad"),
        [
            Reading(
                "g",
                1,
                (entry("Ada", number=None, name="sAMAccountName"), entry("ROOT", name="sAMAccountName")),
            )
        ],
    )
    assert (found.users, [each.why[:4] for each in found.refused]) == (("ada",), ["root"])


def test_two_names_for_one_number_are_both_refused_wherever_they_stand() -> None:
    """To the kernel they are one person: a job of one would run under the account of the other."""
    first, second = judge(
        identity(),
        [Reading("g", 1, (entry("ada"), entry("bob", number="20002"))), Reading("h", 1, (entry("eve"),))],
    )
    assert (first.users, second.users) == (("bob",), ())
    assert [each.why for each in (*first.refused, *second.refused)] == [
        "the uid 20001 has several names: ada, eve"
    ] * 2


def test_one_person_in_two_groups_is_one_person() -> None:
    found = judge(identity(), [Reading("g", 1, (entry("ada"),)), Reading("h", 1, (entry("ada"),))])
    assert [each.users for each in found] == [("ada",), ("ada",)]


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=12)), max_size=5))
def test_whatever_a_directory_says_no_name_is_more_than_a_name(people: list[tuple[str, str]]) -> None:
    entries = tuple(entry(name, number=number, dn=f"cn={name}") for name, number in people)
    [found] = judge(identity(), [Reading("g", 1, entries, tuple(name for name, _ in people))])
    for user in found.users:
        assert re.fullmatch(r"[a-z_][a-z0-9_.-]{0,31}", user, re.ASCII)
        assert user not in MACHINE_ACCOUNTS
    for each in found.refused:
        assert each.who.isprintable()
        assert each.why.isprintable()
        assert len(each.who) <= 120
