"""The people of groups beside the site file, and in the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools import conf
from hpctools.conf.account_difference import difference
from hpctools.conf.accounts import AccountTree
from hpctools.conf.pruning import UNREAD
from hpctools.site import InvalidSiteError, User, load, warnings
from hpctools.site.members import parse_members, spell_members, with_members
from tests.identity.sites import HEAD, site, site_text

GROUPS = {"lab-a": ("ada", "static"), "lab-b": ("ada", "bob"), "lab b guests": ()}


def wanted(groups: dict[str, tuple[str, ...]] | None, text: str = HEAD) -> AccountTree:
    found = site(text)
    return conf.compile(found if groups is None else with_members(found, groups)).accounts


def people(tree: AccountTree, account: str) -> list[str]:
    return [row.user for row in tree.associations if row.account == account]


def write(folder: Path, members: str | None) -> Path:
    (folder / "site.yaml").write_text(site_text())
    if members is not None:
        (folder / "members.yaml").write_text(members)
    return folder / "site.yaml"


def test_people_of_the_file_and_of_the_directory_are_members_alike(tmp_path: Path) -> None:
    read = load(write(tmp_path, spell_members(GROUPS)))
    assert read.users() == (
        User("head", "bio", ("bio",)),
        User("static", "bio-a", ("bio-a",)),
        User("ada", "bio-a", ("bio-a", "bio-b")),
        User("bob", "bio-b", ("bio-b",)),
        User("cy", "bio-c", ("bio-c",)),
    )
    assert (read.unread_accounts, warnings(read)) == (frozenset(), ())
    assert [lab.members for lab in read.departments[0].labs] == [("static", "ada"), ("ada", "bob"), ("cy",)]


def test_a_default_account_counts_only_while_the_directory_agrees() -> None:
    stated = site(HEAD + "\ndefault_accounts: {ada: bio-b}\n")
    assert with_members(stated, GROUPS).users()[2] == User("ada", "bio-b", ("bio-a", "bio-b"))
    moved = with_members(stated, {**GROUPS, "lab-b": ("bob",)})
    assert moved.users()[2] == User("ada", "bio-a", ("bio-a",))


def test_without_the_file_the_site_is_read_and_it_is_said_what_is_not_known(tmp_path: Path) -> None:
    read = load(write(tmp_path, None))
    assert read.unread_accounts == {"bio-a", "bio-b"}
    assert [(each.path, each.severity) for each in warnings(read)] == [
        ("departments[0].labs[0].members_from", "warning"),
        ("departments[0].labs[1].members_from", "warning"),
    ]


def test_one_group_of_several_that_is_missing_leaves_the_account_unread() -> None:
    assert with_members(site(), {"lab-a": (), "lab-b": ("bob",)}).unread_accounts == {"bio-b"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('version: 1\ngroups: {"lab-a": ["root"]}', "groups.lab-a[0]"),
        ('version: 1\ngroups: {"lab-a": ["x account=root"]}', "groups.lab-a[0]"),
        ("version: 2\ngroups: {}", "version"),
        ("version: 1", "groups"),
        ("", ""),
        ("version: 1\ngroups: {a: [}", ""),
    ],
)
def test_a_file_that_was_edited_to_something_else_is_refused(tmp_path: Path, text: str, path: str) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        load(write(tmp_path, text))
    assert [finding.path for finding in caught.value.findings] == [path]
    assert caught.value.findings[0].file.endswith("members.yaml")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, None)
    (tmp_path / "members.yaml").mkdir()
    with pytest.raises(InvalidSiteError, match="what `hpctools identity sync` wrote"):
        load(path)


def test_pruning_takes_who_left_the_group_and_nobody_whom_nobody_asked_about() -> None:
    live = wanted(GROUPS)
    told = difference(wanted({**GROUPS, "lab-b": ("bob",)}), live, prune=True)
    assert [(each.kind, each.action, each.name, each.account) for each in told.changes] == [
        ("association", "remove", "ada", "bio-b")
    ]
    unread = difference(wanted(None), live, prune=True)
    assert unread.changes == ()
    assert {(each.name, each.account, each.why) for each in unread.kept} == {
        ("ada", "bio-a", UNREAD),
        ("ada", "bio-b", UNREAD),
        ("bob", "bio-b", UNREAD),
    }


def test_a_default_account_stays_while_nobody_knows_who_is_in_it() -> None:
    """Who works elsewhere as well must not have their jobs billed there because a file is missing."""
    text = HEAD.replace("members: [cy]", "members: [cy, bob]") + "\ndefault_accounts: {bob: bio-b}\n"
    live = wanted(GROUPS, text)
    assert live.default_accounts["bob"] == "bio-b"
    assert difference(wanted(None, text), live).changes == ()
    left = {**GROUPS, "lab-b": ("ada",)}
    told = difference(wanted(left, text), live)
    assert [(each.kind, each.name, each.before, each.after) for each in told.changes] == [
        ("user", "bob", "bio-b", "bio-c")
    ]


def test_pruning_of_an_unread_lab_that_is_renamed_takes_nobody_either() -> None:
    live = wanted(GROUPS)
    renamed = HEAD.replace("{name: bio-b,", "{name: bio-z, renamed_from: bio-b,")
    found = difference(wanted(None, renamed), live, prune=True)
    assert [each for each in found.changes if each.action == "remove"] == []


def test_limits_of_single_people_may_speak_of_people_of_the_directory() -> None:
    text = HEAD.replace("members_from: [lab-a]", "members_from: [lab-a], members_limits: {ada: {jobs: 3}}")
    [row] = [row for row in wanted(GROUPS, text).associations if (row.user, row.account) == ("ada", "bio-a")]
    assert row.settings["GrpJobs"] == "3"
    with pytest.raises(InvalidSiteError, match="somebody who works there"):
        site(HEAD.replace("members: [cy]", "members: [cy], members_limits: {ada: {jobs: 3}}"))


def test_the_file_shows_a_person_a_line() -> None:
    text = spell_members({"b": ("y", "x"), "a": ()})
    assert text.splitlines()[1:] == ["version: 1", "groups:", '  "a": []', '  "b":', '    - "x"', '    - "y"']
    assert parse_members(spell_members({}), "f") == {}


def test_people_of_groups_stand_in_the_site_once() -> None:
    assert people(wanted({**GROUPS, "lab b guests": ("bob", "ada")}), "bio-b") == ["ada", "bob"]
