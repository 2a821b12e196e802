"""The account sync, from any tree to any other: what is told, in which order, and what is never told."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.conf import (
    Account,
    AccountChange,
    AccountDifference,
    AccountTree,
    Association,
    Call,
    Kept,
    Qos,
    additions,
    bootstrap,
    difference,
    removals,
    restoring,
)
from hpctools.conf.accounts import Beside
from hpctools.conf.slurmdbd import Slurmdbd
from hpctools.conf.vocabulary import names_of
from hpctools.slurm.types import Job
from hpctools.slurm.versions import CoordinatorWay
from tests.conf.slurmdbd import FakeSlurmdbd
from tests.conf.trees import trees


def job(number: int, user: str, account: str, qos: str = "low", state: str = "RUNNING") -> Job:
    return Job(number, "j", user, account, "p", qos, state)


def tell(slurmdbd: FakeSlurmdbd, calls: Iterable[Call]) -> None:
    """Carry the calls out; after each, whoever has a job still may run it."""
    for call in calls:
        if call.argv[0] == "load":
            slurmdbd.load(call.stdin)
        else:
            slurmdbd.carry_out(call.argv)
        for user, account, qos in slurmdbd.jobs:
            assert (user, account) in slurmdbd.associations, call
            assert qos in slurmdbd.qos, call
        assert_sound(slurmdbd, call)


def assert_sound(slurmdbd: FakeSlurmdbd, call: Call) -> None:
    """Everybody's default account is one that the person has."""
    for user, account in slurmdbd.users.items():
        assert (user, account) in slurmdbd.associations, call


def sync(
    slurmdbd: FakeSlurmdbd, wanted: AccountTree, *, prune: bool, jobs: tuple[Job, ...] = ()
) -> AccountDifference:
    found = difference(wanted, slurmdbd.tree(), prune=prune, busy=jobs)
    tell(slurmdbd, additions(found))
    tell(slurmdbd, removals(found))
    return found


def filled(tree: AccountTree) -> FakeSlurmdbd:
    slurmdbd = FakeSlurmdbd()
    sync(slurmdbd, tree, prune=False)
    return slurmdbd


def as_sets(tree: AccountTree) -> tuple[object, ...]:
    accounts = {a.name: (a.parent, a.settings, set(a.coordinators)) for a in tree.accounts}
    rows = {(row.user, row.account): row.settings for row in tree.associations}
    return accounts, rows, tree.default_accounts, {qos.name: qos.settings for qos in tree.qos}


def names(tree: AccountTree) -> tuple[set[str], set[str], set[tuple[str, str]]]:
    people = {(row.user, row.account) for row in tree.associations}
    return {a.name for a in tree.accounts}, {q.name for q in tree.qos}, people


@given(trees(), trees(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_from_any_tree_to_any_other_and_then_nothing_is_left(
    before: AccountTree, after: AccountTree, prune: bool
) -> None:
    slurmdbd = filled(before)
    sync(slurmdbd, after, prune=prune)
    assert difference(after, slurmdbd.tree(), prune=prune).changes == ()
    accounts, qos, people = names(slurmdbd.tree())
    wanted = names(after)
    if prune:
        assert (accounts, qos, people) == (
            wanted[0] | {"root"},
            wanted[1] | {"normal"},
            wanted[2] | {("root", "root")},
        )
    else:
        there = names(before)
        assert accounts >= wanted[0] | there[0]
        assert qos >= wanted[1] | there[1]
        assert people >= wanted[2] | there[2]


@given(trees(), trees(), st.data())
@settings(max_examples=60, deadline=None)
def test_whoever_has_a_job_keeps_what_it_needs_at_every_step(
    before: AccountTree, after: AccountTree, data: st.DataObject
) -> None:
    slurmdbd = filled(before)
    if not before.associations:
        return
    rows = data.draw(st.lists(st.sampled_from(before.associations), unique_by=id, max_size=3))
    qos = data.draw(st.sampled_from(before.qos)).name
    jobs = tuple(job(n, row.user, row.account, qos) for n, row in enumerate(rows))
    slurmdbd.jobs = {(each.user, each.account, each.qos) for each in jobs}
    found = sync(slurmdbd, after, prune=True, jobs=jobs)
    assert difference(after, slurmdbd.tree(), prune=True, busy=jobs).changes == ()
    unwanted = {(each.user, each.account) for each in jobs} - names(after)[2]
    kept = {(each.name, each.account) for each in found.kept if each.kind == "association" and each.jobs}
    assert kept == unwanted
    # When they have ended the rest goes.
    slurmdbd.jobs = set()
    sync(slurmdbd, after, prune=True)
    assert names(slurmdbd.tree())[2] == names(after)[2] | {("root", "root")}


@given(trees(), trees(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_restoring_brings_back_exactly_what_was(before: AccountTree, after: AccountTree, prune: bool) -> None:
    slurmdbd = filled(before)
    was = slurmdbd.tree()
    sync(slurmdbd, after, prune=prune)
    back = restoring(was, slurmdbd.tree())
    tell(slurmdbd, (*additions(back), *removals(back)))
    assert as_sets(slurmdbd.tree()) == as_sets(was)


@given(trees(), trees(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_additions_take_nothing_from_anybody(before: AccountTree, after: AccountTree, prune: bool) -> None:
    slurmdbd = filled(before)
    was = slurmdbd.tree()
    found = difference(after, was, prune=prune)
    tell(slurmdbd, additions(found))
    there, now = names(was), names(slurmdbd.tree())
    assert all(old <= new for old, new in zip(there, now, strict=True))
    allowed = {each.name: names_of(each.settings["QOS"]) for each in slurmdbd.tree().accounts}
    assert all(names_of(each.settings["QOS"]) <= allowed[each.name] for each in was.accounts)


@pytest.mark.parametrize("prune", [False, True])
def test_who_coordinates_the_account_above_is_told_once(prune: bool) -> None:
    """An account moves below one whose coordinator becomes its own; above they stay until they are pruned.

    Where they stay they are not told of the account, too: it would come to light when the account moves back.
    """
    people = (("eve", "bio"),)
    before = tree(Account("geo", "root", {}, ("eve",)), Account("bio", "root", {}), people=people)
    after = tree(Account("geo", "root", {}), Account("bio", "geo", {}, ("eve",)), people=people)
    slurmdbd = filled(before)
    was = slurmdbd.tree()
    sync(slurmdbd, after, prune=prune)
    assert slurmdbd.coordinators == ({"geo": [], "bio": ["eve"]} if prune else {"geo": ["eve"]})
    assert difference(after, slurmdbd.tree(), prune=prune).changes == ()
    sync(slurmdbd, was, prune=True)
    assert as_sets(slurmdbd.tree()) == as_sets(was)


@given(trees(), trees(), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_a_sync_that_stops_anywhere_is_completed_by_the_next(
    before: AccountTree, after: AccountTree, first: int
) -> None:
    found = difference(after, filled(before).tree(), prune=True)
    calls = (*additions(found), *removals(found))
    for stop in range(first, len(calls), 5):
        slurmdbd = filled(before)
        tell(slurmdbd, calls[:stop])
        sync(slurmdbd, after, prune=True)
        assert difference(after, slurmdbd.tree(), prune=True).changes == ()


@given(trees())
@settings(max_examples=20, deadline=None)
def test_the_order_in_a_site_file_makes_no_difference_to_what_is_left(tree: AccountTree) -> None:
    slurmdbd = filled(tree)
    turned = replace(tree, qos=tree.qos[::-1], associations=tree.associations[::-1])
    assert difference(turned, slurmdbd.tree(), prune=True).changes == ()


# Examples, whole.

GONE = Kept("account", "old", "", "the site does not name it; pruning removes it")


def tree(
    *accounts: Account,
    qos: tuple[Qos, ...] = (Qos("low", {}),),
    people: tuple[tuple[str, str], ...] = (),
    defaults: dict[str, str] | None = None,
    beside: Beside | None = None,
) -> AccountTree:
    rows = tuple(Association(user, account, {}) for user, account in people)
    held = {row.user: row.account for row in reversed(rows)}
    return AccountTree(("uni",), qos, accounts, defaults or held, rows, beside or Beside())


def test_a_person_who_moves_is_added_then_moved_then_removed() -> None:
    a, b = Account("lab-a", "root", {}), Account("lab-b", "root", {})
    found = difference(
        tree(a, b, people=(("ada", "lab-b"),)), tree(a, b, people=(("ada", "lab-a"),)), prune=True
    )
    assert found.changes == (
        AccountChange("association", "add", "ada", "lab-b", users=("ada",)),
        AccountChange("user", "set", "ada", "lab-b", "DefaultAccount", "lab-a", "lab-b", users=("ada",)),
        AccountChange("association", "remove", "ada", "lab-a", users=("ada",), late=True),
    )
    assert [call.argv for call in additions(found)] == [
        ("load", "file=/dev/stdin"),
        ("modify", "user", "where", "name=ada", "cluster=uni", "set", "DefaultAccount=lab-b"),
    ]
    assert [call.argv for call in removals(found)] == [
        ("delete", "user", "where", "name=ada", "account=lab-a", "cluster=uni")
    ]


def test_who_keeps_an_account_and_who_leaves_are_removed_apart() -> None:
    """Slurm refuses a call for both: "You can not remove the default account of a user"."""
    a, b = Account("lab-a", "root", {}), Account("lab-b", "root", {})
    before = tree(a, b, people=(("kim", "lab-a"), ("ada", "lab-a"), ("eve", "lab-b"), ("eve", "lab-a")))
    found = difference(tree(b, people=(("ada", "lab-b"), ("eve", "lab-b"))), before, prune=True)
    assert [call.argv[3] for call in removals(found)][:2] == ["name=eve,ada", "name=kim"]


def test_jobs_that_have_ended_keep_nothing() -> None:
    lab = Account("lab", "root", {})
    there = tree(lab, people=(("ada", "lab"), ("bob", "lab")))
    jobs = (
        job(1, "ada", "lab", state="COMPLETED"),
        job(2, "bob", "lab"),
        job(3, "bob", "lab", state="PENDING"),
    )
    found = difference(tree(lab), there, prune=True, busy=jobs)
    assert [change.subject for change in found.changes] == ["ada in lab"]
    assert found.kept == (Kept("association", "bob", "lab", "1 job running, 1 job pending", (2, 3)),)


def test_an_account_stays_when_something_below_it_does() -> None:
    old, below = Account("old", "root", {}), Account("below", "old", {})
    there = tree(old, below, people=(("ada", "below"), ("bob", "old")))
    found = difference(tree(), there, prune=True, busy=(job(7, "ada", "below"),))
    assert [change.subject for change in found.changes] == ["bob in old"]
    assert [(kept.subject, kept.why) for kept in found.kept] == [
        ("ada in below", "1 job running"),
        ("below", "1 job running"),
        ("old", "not all of it can go: account below stays"),
    ]


@pytest.mark.parametrize(
    ("beside", "why"),
    [
        (Beside(partitioned=frozenset({("ada", "old")})), "ada has an association for one partition"),
        (Beside(unread=("uni|a|b",)), "slurmdbd holds names that cannot be read"),
    ],
)
def test_what_cannot_be_judged_is_left_alone(beside: Beside, why: str) -> None:
    found = difference(tree(), tree(Account("old", "root", {}), beside=beside), prune=True)
    assert found.changes == ()
    assert found.kept == (Kept("account", "old", "", f"not all of it can go: {why}"),)


def test_root_normal_and_what_others_use_are_never_removed() -> None:
    root = Account("root", "root", {"QOS": "rooted"})
    names = ("normal", "rooted", "theirs", "free")
    there = tree(
        root,
        Account("old", "root", {}),
        qos=tuple(Qos(name, {}) for name in names),
        people=(("root", "root"),),
        beside=Beside(clusters=frozenset({"other"}), qos=frozenset({"theirs"})),
    )
    found = difference(tree(qos=()), there, prune=True)
    assert [call.argv for call in removals(found)] == [
        ("delete", "account", "where", "name=old", "cluster=uni"),
        ("delete", "qos", "where", "name=free"),
    ]
    assert [kept.subject for kept in found.kept] == ["rooted", "theirs"]


def test_a_qos_that_only_settings_name_is_named() -> None:
    """It was pruned, and what named it could not be set any more."""
    wanted = tree(Account("lab", "root", {"QOS": "+own"}))
    there = tree(
        Account("lab", "root", {"QOS": "+own"}), qos=(Qos("low", {}), Qos("own", {}), Qos("free", {}))
    )
    assert [change.subject for change in difference(wanted, there, prune=True).changes] == ["free"]
    assert [kept.subject for kept in difference(wanted, there).kept] == ["free"]


def test_unless_asked_nothing_goes_and_it_is_said() -> None:
    found = difference(tree(), tree(Account("old", "root", {})))
    assert (found.changes, found.kept) == ((), (GONE,))


def test_limits_on_what_slurmctld_has_not_named_yet_wait_for_it() -> None:
    limits = {"GrpTRES": "cpu=4,gres/gpu=2", "GrpJobs": "3"}
    wanted = tree(Account("new", "root", limits), Account("there", "root", limits))
    live = tree(Account("there", "root", {}), beside=Beside(tres=("cpu", "mem")))
    found = difference(wanted, live)
    assert [call.argv for call in removals(found)] == [
        ("modify", "account", "where", f"name={name}", "cluster=uni", "set", "GrpTRES=cpu=4,gres/gpu=2")
        for name in ("new", "there")
    ]
    (load, rest) = additions(found)
    assert load.stdin == "Cluster - 'uni'\nParent - 'root'\nAccount - 'new':GrpJobs='3'\n"
    assert rest.argv == ("modify", "account", "where", "name=there", "cluster=uni", "set", "GrpJobs=3")


def test_memory_that_slurm_shows_rounded_is_told_once() -> None:
    """1024.5 GiB are shown as 1.00T: each plan had them again, and no apply came to its end."""
    wanted = tree(Account("lab", "root", {"GrpTRES": "cpu=2,mem=1049088"}))
    shown = tree(Account("lab", "root", {"GrpTRES": "cpu=2,mem=1048576"}))
    assert difference(wanted, shown).changes == ()
    assert [change.after for change in difference(shown, wanted).changes] == ["cpu=2,mem=1048576"]
    (change,) = difference(wanted, tree(Account("lab", "root", {"GrpTRES": "cpu=1,mem=1048576"}))).changes
    assert change.after == "cpu=2,mem=1049088", "all of it is told, and exactly"


def test_a_setting_of_an_older_history_is_compared_as_it_stands() -> None:
    """One that no release has any more ended with a bare KeyError."""
    then, now = tree(Account("lab", "root", {"Old": "2"})), tree(Account("lab", "root", {"Old": "1"}))
    assert difference(then, then).changes == ()
    found = difference(then, now)
    assert [change.after for change in found.changes] == ["2"]
    assert [call.argv[-1] for call in additions(found)] == ["Old=2"]


def test_qos_are_told_bare_before_slurmctld_starts() -> None:
    wanted = tree(qos=(Qos("high", {"Preempt": "low"}), Qos("low", {})))
    empty = AccountTree((), (), (), {}, ())
    assert [call.argv for call in bootstrap(difference(wanted, empty))] == [
        ("add", "cluster", "uni"),
        ("add", "qos", "name=high,low"),
    ]


def test_a_narrower_list_is_first_wider() -> None:
    qos = tuple(Qos(name, {}) for name in ("a", "b", "c"))
    wanted = tree(Account("x", "root", {"QOS": "b,c", "DefaultQOS": "c"}), qos=qos)
    live = tree(Account("x", "root", {"QOS": "a,b", "DefaultQOS": "a"}), qos=qos)
    found = difference(wanted, live)
    where = ("modify", "account", "where", "name=x", "cluster=uni", "set")
    assert [call.argv for call in additions(found)] == [(*where, "QOS=a,b,c", "DefaultQOS=c")]
    assert [call.argv for call in removals(found)] == [(*where, "QOS=b,c")]


def test_a_new_name_comes_beside_the_old_one_which_is_closed() -> None:
    wanted = tree(Account("new", "root", {}, renamed_from="old"), people=(("ada", "new"),))
    live = tree(Account("old", "root", {}), people=(("ada", "old"),))
    found = difference(wanted, live)
    new, _, _, closed = found.changes
    assert new.why.startswith("instead of old: Slurm cannot rename")
    assert (closed.name, closed.key, closed.after, closed.late) == ("old", "GrpSubmitJobs", "0", True)
    assert [kept.why for kept in found.kept][-1] == "renamed to new; pruning removes it"


def test_jobs_that_wait_under_an_old_tier_are_named() -> None:
    wanted = tree(qos=(Qos("usual", {}, renamed_from="low"),))
    jobs = (
        job(1, "ada", "lab"),
        job(2, "ada", "lab", state="PENDING"),
        job(3, "bob", "lab", state="SPECIAL_EXIT"),  # held, and shown instead of PENDING
    )
    closed = difference(wanted, tree(), busy=jobs).changes[-1]
    assert closed.why == (
        "renamed to usual: jobs that run go on, new ones are refused; "
        "for those that wait: scontrol update jobid=2,3 qos=usual"
    )


def test_a_person_left_with_another_account_gets_it_as_default() -> None:
    """Deleting a default account would leave the person without any, and jobs without --account refused."""
    a, b = Account("a", "root", {}), Account("b", "root", {})
    there = tree(a, b, people=(("ada", "a"), ("ada", "b")))
    found = difference(tree(), there, prune=True, busy=(job(1, "ada", "b"),))
    assert [call.argv for call in removals(found)][:2] == [
        ("modify", "user", "where", "name=ada", "cluster=uni", "set", "DefaultAccount=b"),
        ("delete", "user", "where", "name=ada", "account=a", "cluster=uni"),
    ]


# The edge.


@pytest.mark.parametrize(("number", "loaded"), [(20, True), (21, False)])
def test_many_coordinators_are_not_loaded(number: int, loaded: bool) -> None:
    labs = [Account(f"lab{n}", "root", {}, (f"u{n}",)) for n in range(number)]
    wanted = tree(*labs, people=tuple((f"u{n}", f"lab{n}") for n in range(number)))
    load, *rest = additions(difference(wanted, tree()))
    assert ("Coordinator=" in load.stdin) == loaded
    assert [call.together for call in rest] == ([] if loaded else [True] * number)


def test_coordinators_are_loaded_with_people_or_afterwards() -> None:
    """24.11.5 loads them soon; 26.05.5 dies of many that are told at the same time (docs/decisions/0157)."""
    labs = [Account(f"lab{n}", "root", {}, (f"u{n}", "head")) for n in range(30)]
    people = (*((f"u{n}", f"lab{n}") for n in range(30)), ("head", "lab7"))
    found = difference(tree(*labs, people=people), tree())
    (load,) = additions(found, "loaded")
    assert all(f"User - 'u{n}'" in load.stdin for n in range(30))
    assert load.stdin.count("Coordinator=") == 31
    first, second = additions(found, "afterwards")
    assert "Coordinator=" not in first.stdin
    assert (second.argv, second.together) == (("load", "file=/dev/stdin"), False)
    told = [f"Parent - 'lab{n}'\nUser - 'u{n}':Coordinator='lab{n}'\n" for n in range(30)]
    head = f"Parent - 'lab7'\nUser - 'head':Coordinator='{','.join(f'lab{n}' for n in range(30))}'\n"
    assert second.stdin == "Cluster - 'uni'\n" + told[0] + head + "".join(told[1:])
    assert {(change.name, change.account) for change in second.changes} == {
        *((f"u{n}", f"lab{n}") for n in range(30)),
        *(("head", f"lab{n}") for n in range(30)),
    }


@pytest.mark.parametrize("way", ["loaded", "afterwards"])
def test_people_who_are_there_become_coordinators_one_call_after_the_other(way: CoordinatorWay) -> None:
    labs = [Account(f"lab{n}", "root", {}, (f"u{n}",)) for n in range(30)]
    people = tuple((f"u{n}", f"lab{n}") for n in range(30))
    there = tree(*(replace(lab, coordinators=()) for lab in labs), people=people)
    known = additions(difference(tree(*labs, people=people), there), way)
    assert [(call.argv[:2], call.together) for call in known] == [(("add", "coordinator"), False)] * 30


@pytest.mark.parametrize(
    ("version", "together"), [("slurm-wlm 22.05.8", True), ("slurm 24.11.5", False), ("slurm 26.05.5", False)]
)
def test_the_release_says_how_coordinators_are_told(version: str, together: bool) -> None:
    told: list[tuple[str, ...]] = []

    def tell(argv: Sequence[str], stdin: str) -> str:
        told.append(tuple(argv))
        return version

    labs = [Account("lab", "root", {}, ("ada",))]
    found = difference(
        tree(*labs, people=(("ada", "lab"),)), tree(Account("lab", "root", {}), people=(("ada", "lab"),))
    )
    calls = Slurmdbd("uni", tell)._additions(found)
    assert ([call.together for call in calls], told) == ([together], [("sacctmgr", "-V")])
    told.clear()
    assert (Slurmdbd("uni", tell)._additions(difference(tree(), tree())), told) == ((), [])
