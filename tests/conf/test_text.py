"""How files are spelled: folding, settings of others' words, and comments that say where things stand."""

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from hpctools.conf import Facts, compile
from hpctools.conf.plan.values import hosts
from hpctools.conf.text import Said, changed, comment, fold, refold, section, without_comments
from hpctools.site import Site, loads
from hpctools.site.source import Source

TEXT = """\
cluster:
  name: tiny
  controllers: [ctl]
  parameters: {KillWait: 9}
node_groups:
  - {name: cpu, instance_type: m5.large, count: 2}
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [cpu]}}
tiers:
  normal: {priority: 1, default: true}
"""


NUMBERS = st.integers(0, 30).map(str) | st.sampled_from(["01", "007", "10", "00"])
RANGES = st.lists(NUMBERS | st.builds("{}-{}".format, st.integers(0, 9), st.integers(9, 40)), min_size=1)
NAMES = st.sampled_from(["n", "gpu-", "a1-", "a", "r.", "x_"])
ITEMS = (
    st.builds("{}{}".format, NAMES, NUMBERS)
    | st.builds(lambda name, ranges: f"{name}[{','.join(ranges)}]", NAMES, RANGES)
    | st.builds("{}{}[1-3]".format, NAMES, NUMBERS)
    | st.builds("{}[1-2]n{}".format, NAMES, NUMBERS)
    | st.sampled_from(["login", "a-b", "x1y"])
)
HOST_LISTS = st.lists(ITEMS, min_size=1, max_size=6).map(",".join)


@given(HOST_LISTS)
def test_a_host_list_is_folded_the_same_without_its_names_being_written_out(text: str) -> None:
    slowly = fold(NodeSet(text))
    assert refold(text) in (slowly, None)
    assert hosts(text) == slowly
    assert set(NodeSet(hosts(text))) == set(NodeSet(text))


@pytest.mark.parametrize(
    "text", ["n01", "n[08-10]", "r[1-2]n[1-4]", "n1[1-3]", "n[3-1]", "", "n[1-3", "@x", "a!b"]
)
def test_a_host_list_that_takes_more_is_not_folded_quickly(text: str) -> None:
    assert refold(text) is None


def test_a_long_host_list_is_folded_quickly() -> None:
    assert (
        refold("thin-[1-2000,2001],b,fat-[1-250],a100-[7-9],fat-251")
        == "a100-[7-9],b,fat-[1-251],thin-[1-2001]"
    )


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["b-2", "a-1", "b-1", "b-10", "c"], "a-1,b-[1-2,10],c"),
        (["n10", "n9", "n8"], "n[8-10]"),
        (["n10", "n09", "n08"], "n[08-10]"),
        (["n1", "n01", "n001"], "n1,n01,n001"),
        (["a1b", "a2b"], "a1b,a2b"),
        ([], ""),
    ],
)
def test_folding(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def test_changed_settings_do_not_tell_upper_from_lower_case() -> None:
    ours: dict[str, object] = {"KillWait": 30, "MinJobAge": 300, "GresTypes": None}
    changes = {"killwait": "7", "MINJOBAGE": "", "gresTypes": "gpu", "Licenses": "a:1", "Nothing": ""}
    assert changed(ours, changes) == {
        "KillWait": "7",
        "MinJobAge": None,
        "GresTypes": "gpu",
        "Licenses": "a:1",
    }


def test_a_section_says_where_each_setting_stands_once() -> None:
    source = Source("/home/x/my site.yaml", {("a",): 3, ("a", "b"): 4})
    settings = {
        "K": Said(1, ("a",)),
        "L": Said(2, ("a",)),
        "M": Said(3, ("a", "b")),
        "N": 4,
        "O": Said(5, ("c",)),
    }
    assert section("T", settings, source) == (
        "\n# T\n# my_site.yaml:3 a\nK=1\nL=2\n# my_site.yaml:4 a.b\nM=3\nN=4\nO=5\n"
    )


def test_a_file_name_cannot_say_anything_to_slurm() -> None:
    source = Source("/x/evil\nInclude root.yaml", {("a\nb",): 3})
    assert comment(source, ("a\nb",)) == "# evil_Include_root.yaml:3 _a_nb_\n"


def texts(site: Site) -> dict[str, str]:
    return {file.path: file.text for file in compile(site, Facts(slurm_version=(24, 11))).files}


def test_comments_name_the_lines_of_the_file_and_change_nothing() -> None:
    """A site that moved in its file, or was built in code, means the same to Slurm."""
    site = loads(TEXT, "/srv/cluster/site.yaml")
    moved = loads(f"# one\n# more\n{TEXT}", "site.yaml")
    built = Site.model_validate(site.model_dump())
    assert site == moved == built
    said = [line for line in texts(site)["slurm.conf"].splitlines() if line.startswith("# site.yaml")]
    assert said == [
        "# site.yaml:3 cluster.controllers[0]",
        "# site.yaml:2 cluster.name",
        "# site.yaml:4 cluster.parameters.KillWait",
        "# site.yaml:6 node_groups[0]",
        "# site.yaml:8 departments[0].partition",
    ]
    assert "site.yaml:8 cluster.name" not in texts(moved)["slurm.conf"]
    assert "site.yaml" not in "".join(texts(built).values())
    assert "/srv" not in "".join(texts(site).values())
    for path, text in texts(site).items():
        assert (
            without_comments(text)
            == without_comments(texts(moved)[path])
            == without_comments(texts(built)[path])
        )


def test_without_comments_only_what_slurm_reads_is_left() -> None:
    assert without_comments("# a\n\nB=1  # c\n  \nD=2\n") == "B=1\nD=2\n"
