"""Limits that a budget has taken: known by a mark, left alone by the sync, given back as they were."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.conf import Account, parse_live
from hpctools.conf.account_difference import difference
from hpctools.conf.accounts import AccountTree
from hpctools.conf.held import KEYS, held, with_mark
from tests.conf.test_live import ASSOCIATIONS, CLUSTERS, QOS, TRES, USERS

DESCRIPTIONS = "nlp|language [hpctools-budget uni grpsubmitjobs=7;]\nnlp-a|x\nroot|r\n".replace(";", "")


def test_a_mark_says_what_there_was() -> None:
    text = with_mark("Natural Language", "uni-gpu", {"QOS": "high,low", "GrpSubmitJobs": ""})
    assert text == "Natural Language [hpctools-budget uni-gpu grpsubmitjobs= qos=high,low]"
    assert held(text.lower(), "Uni-GPU") == {"GrpSubmitJobs": "", "QOS": "high,low"}
    assert held(text, None) == held(text, "uni-gpu")
    assert held(text, "other") == {}


def test_each_cluster_has_its_own_and_it_goes_without_a_trace() -> None:
    one = with_mark("nlp", "uni", {"GrpSubmitJobs": "3"})
    both = with_mark(one, "other", {"GrpSubmitJobs": "9"})
    assert (held(both, "uni"), held(both, "other")) == ({"GrpSubmitJobs": "3"}, {"GrpSubmitJobs": "9"})
    assert with_mark(with_mark(both, "uni", {}), "other", {}) == "nlp"


@pytest.mark.parametrize("text", ["", "[hpctools-budget]", "[hpctools-budget uni evil=1 grpsubmitjobs=`x`]"])
def test_what_is_no_mark_holds_nothing(text: str) -> None:
    assert held(text, "uni") == {}


@given(
    st.text(st.characters(blacklist_characters="[]\n|", blacklist_categories=["Cs"]), max_size=30),
    st.dictionaries(st.sampled_from(KEYS), st.from_regex(r"[a-z0-9_.,-]{0,12}", fullmatch=True), min_size=1),
)
def test_what_is_written_is_read(description: str, before: dict[str, str]) -> None:
    text = with_mark(description, "uni", before)
    assert held(text, "uni") == before
    assert held(text.lower(), "uni") == before
    assert with_mark(text, "uni", {}) == description.strip()


def live(descriptions: str, limit: str) -> AccountTree:
    """The cluster of test_live where nlp may submit so many jobs."""
    rows = ASSOCIATIONS.splitlines(keepends=True)
    found = parse_live(QOS, "".join(rows), USERS, CLUSTERS, TRES, descriptions, cluster="uni")
    return replace(found, accounts=tuple(_limited(each, limit, found) for each in found.accounts))


def _limited(account: Account, limit: str, tree: AccountTree) -> Account:
    """slurmdbd's value, unless a budget holds it: then the tree has what there was before."""
    if account.name != "nlp" or (account.name, "GrpSubmitJobs") in tree.beside.held:
        return account
    return replace(account, settings={**account.settings, "GrpSubmitJobs": limit})


def test_a_held_limit_is_read_as_it_was_before() -> None:
    found = live(DESCRIPTIONS, "0")
    nlp = next(each for each in found.accounts if each.name == "nlp")
    assert nlp.settings["GrpSubmitJobs"] == "7"
    assert found.beside.held == {("nlp", "GrpSubmitJobs")}


def test_a_held_limit_is_no_difference() -> None:
    wanted = replace(live("", "7"), clusters=("uni",))
    found = difference(wanted, live(DESCRIPTIONS, "0"))
    assert [change for change in found.changes if change.name == "nlp"] == []
    assert found.kept == ()
    assert [change.key for change in difference(wanted, live("", "0")).changes] == ["GrpSubmitJobs"]


def test_what_the_site_wants_meanwhile_waits_and_is_said() -> None:
    wanted = replace(live("", "50"), clusters=("uni",))
    found = difference(wanted, live(DESCRIPTIONS, "0"))
    assert found.changes == ()
    assert [(each.name, each.why) for each in found.kept] == [
        (
            "nlp",
            "GrpSubmitJobs is in the hands of its budget (`hpctools budget enforce`); then it becomes 50",
        )
    ]
