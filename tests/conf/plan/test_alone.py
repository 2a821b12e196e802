"""Partitions that give nodes to one alone: 26.05 shows one word for what may be several."""

import pytest

from hpctools.conf.plan.alone import in_old_words
from hpctools.conf.plan.shown import read_shown
from hpctools.slurm import parse
from tests.conf.plan.stage import EARLY, LATE, bundle, planned

LATEST = (26, 5, 5)
HEAD = "partition: {node_groups: [reserved, shared], max_time: 1-00:00:00"
Edit = tuple[str, str]


def terms(more: str) -> Edit:
    """The one partition of reserved nodes alone, since GPUs of the others are shared."""
    return f"{HEAD}}}", f"{HEAD}, {more}}}".replace("[reserved, shared]", "[reserved]")


WHOLE = terms("over_subscribe: exclusive")
USER = terms("exclusive_user: true")
BOTH = terms("over_subscribe: exclusive, exclusive_user: true")
TOPO = terms("parameters: {ExclusiveTopo: 'YES'}")
WHOLE_TOPO = terms("over_subscribe: exclusive, parameters: {ExclusiveTopo: 'YES'}")
NEW_NODE = terms("parameters: {Exclusive: NODE}")
NEW_TOPO = terms("parameters: {Exclusive: TOPO}")
NEW_USER = terms("parameters: {Exclusive: USER}")


def changes(there: Edit, wanted: Edit, release: tuple[int, ...] = LATEST) -> list[tuple[str, str | None]]:
    found = planned(bundle(there, release=release), bundle(wanted, release=release), release=release)
    return [(change.key, change.after) for change in found.changes if change.area == "partition"]


@pytest.mark.parametrize("edit", [WHOLE, USER, BOTH, TOPO, WHOLE_TOPO, NEW_NODE, NEW_TOPO, NEW_USER])
def test_what_runs_as_wanted_is_no_change(edit: Edit) -> None:
    """Each apply to such a partition was taken back: what was verified never came."""
    assert changes(edit, edit) == []


@pytest.mark.parametrize("edit", [WHOLE, USER, BOTH, TOPO, WHOLE_TOPO])
def test_releases_before_show_every_word(edit: Edit) -> None:
    release = LATE if "Topo" in edit[1] else EARLY
    assert changes(edit, edit, release) == []
    assert changes(WHOLE, BOTH, EARLY) == [("ExclusiveUser", "YES")]


def test_what_is_not_shown_is_compared_with_the_file() -> None:
    assert changes(WHOLE, BOTH) == [("ExclusiveUser", "YES")]
    assert changes(BOTH, WHOLE) == [("ExclusiveUser", None)]
    assert changes(TOPO, WHOLE_TOPO) == [("OverSubscribe", "EXCLUSIVE")]


def test_what_is_shown_is_compared_with_what_runs() -> None:
    assert changes(USER, WHOLE) == [("OverSubscribe", "EXCLUSIVE"), ("ExclusiveUser", None)]
    assert changes(WHOLE, USER) == [("OverSubscribe", "NO"), ("ExclusiveUser", "YES")]


@pytest.mark.parametrize(("word", "whole"), [("NO", False), ("USER", False), ("NODE", True), ("TOPO", True)])
def test_who_gives_whole_nodes(word: str, whole: bool) -> None:
    line = f"PartitionName=p State=UP TotalNodes=1 Nodes=n1 OverSubscribe=NO Exclusive={word}\n"
    (partition,) = parse.partitions(line)
    assert partition.exclusive is whole
    shown = read_shown("", "", line).meaning.partitions["p"]
    assert (shown["oversubscribe"] == "EXCLUSIVE") is whole


def test_the_old_words_stay_as_they_are() -> None:
    said = {"oversubscribe": "FORCE:4", "exclusiveuser": "YES"}
    assert in_old_words(said) == said


@pytest.mark.parametrize("word", ["NO", "none"])
def test_the_new_word_takes_the_old_ones_back(word: str) -> None:
    """The plan said that nodes stay whole, and slurmctld shared them."""
    said = {"oversubscribe": "EXCLUSIVE", "exclusiveuser": "YES", "exclusive": word}
    assert in_old_words(said) == {"oversubscribe": "NO", "exclusiveuser": "NO", "exclusive": word}
    shared = {"oversubscribe": "YES:2", "exclusive": word}
    assert in_old_words(shared) == shared
