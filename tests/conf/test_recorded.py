"""What the real sacctmgr of each release prints of the reference site is that site."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.conf import AccountTree, Facts, compile, live_queries, parse_live, sync_commands
from hpctools.conf.existing.dump import parse_dump
from hpctools.conf.existing.tree import tree_of
from hpctools.site import load
from hpctools.slurm.versions import parse_release

ROOT = Path(__file__).parents[2]
RELEASES = sorted(
    path.name for path in (ROOT / "tests/recorded").iterdir() if path.is_dir() and path.name[0].isdigit()
)


def known(release: str) -> AccountTree:
    folder = ROOT / "tests/recorded" / release
    texts = [(folder / f"sacctmgr-show-{query[1]}.txt").read_text() for query in live_queries()]
    return parse_live(*texts, cluster="uni-gpu")


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_left_to_tell(release: str) -> None:
    wanted = compile(
        load(ROOT / "slurm-conf/examples/university/site.yaml"), Facts(slurm_version=parse_release(release))
    ).accounts
    found = known(release)
    assert sync_commands(wanted, found) == ()
    assert found.beside.unread == ()
    assert {each.name for each in found.accounts} == {"root", *(each.name for each in wanted.accounts)}


@pytest.mark.parametrize("release", RELEASES)
def test_a_dump_says_the_same(release: str) -> None:
    dump = parse_dump((ROOT / "tests/recorded" / release / "sacctmgr-dump-university.txt").read_text())
    shown = known(release)
    dumped = tree_of(dump, shown.qos)
    assert rows(dumped) == rows(shown)
    assert {account: set(people) for account, people in coordinators(dumped).items()} == {
        account: set(people) for account, people in coordinators(shown).items()
    }


def rows(tree: AccountTree) -> dict[tuple[str, str], dict[str, str]]:
    """What is set, by person and account; root's own rows are Slurm's."""
    accounts = {("", each.name): each.settings for each in tree.accounts if each.name != "root"}
    people = {(each.user, each.account): each.settings for each in tree.associations if each.user != "root"}
    return {name: {k: v for k, v in each.items() if v} for name, each in {**accounts, **people}.items()}


def coordinators(tree: AccountTree) -> dict[str, tuple[str, ...]]:
    return {each.name: each.coordinators for each in tree.accounts if each.coordinators}
