"""What becomes of departments, labs, members and tiers in slurmdbd, and how it is quoted."""

import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.conf import AccountTree, additions, difference
from hpctools.conf.wanted_accounts import account_tree
from hpctools.errors import SiteError
from hpctools.site import InvalidSiteError, Site, loads

EMPTY = AccountTree((), (), (), {}, ())
HEAD = """\
cluster: {name: tiny, slurm: "24.11", controllers: [ctl]}
node_groups:
  - {name: cpu, instance_type: m5.large, count: 2}
"""
TIERS = """\
tiers:
  normal: {priority: 1, default: true}
"""
DEEP = """\
departments:
  - name: bio
    supervisor: ada
    members: [tom]
    partition: {node_groups: [cpu]}
    limits: {gpus: 40, gpus_per_user: 16, gpu_hours: 1000, cpu_hours: 5, memory_mib: 2048, submitted_jobs: 90}
    labs:
      - name: genes
        supervisor: ada
        members: [bob]
        limits: {gpus_per_user: 8, gpus_per_job: 4, cpus_per_job: 64, nodes_per_job: 2}
        settings: {GrpTRES: "cpu=9", GrpWall: "2-00:00:30", Priority: 5}
        members_limits:
          bob: {gpus: 12, jobs: 3, fair_share: 7, settings: {MaxJobsAccrue: 2}}
        labs:
          - {name: fish, members: [kim], renamed_from: carp}
"""


def settings_of(tree: AccountTree) -> dict[str, dict[str, str]]:
    """What is set of each account and each person."""
    rows = [(account.name, account.settings) for account in tree.accounts]
    rows += [(f"{row.user} in {row.account}", row.settings) for row in tree.associations]
    return {name: {key: value for key, value in each.items() if value} for name, each in rows}


def test_departments_labs_and_members() -> None:
    tree = account_tree(loads(HEAD + DEEP + "default_accounts: {ada: bio}\n" + TIERS))
    assert [(each.name, each.parent, each.coordinators, each.renamed_from) for each in tree.accounts] == [
        ("bio", "root", ("ada",), ""),
        # ada coordinates it already, from above.
        ("genes", "bio", (), ""),
        ("fish", "genes", (), "carp"),
    ]
    assert settings_of(tree) == {
        "bio": {
            "Fairshare": "1",
            "GrpTRES": "gres/gpu=40,mem=2048",
            "GrpTRESMins": "cpu=300,gres/gpu=60000",
            "GrpSubmitJobs": "90",
            "QOS": "normal",
            "DefaultQOS": "normal",
        },
        "genes": {
            "Fairshare": "1",
            "GrpTRES": "cpu=9",
            "MaxTRES": "cpu=64,gres/gpu=4,node=2",
            "GrpWall": "172860",
            "Priority": "5",
        },
        "fish": {"Fairshare": "1"},
        "ada in bio": {"Fairshare": "1", "GrpTRES": "gres/gpu=16"},
        "tom in bio": {"Fairshare": "1", "GrpTRES": "gres/gpu=16"},
        "ada in genes": {"Fairshare": "1", "GrpTRES": "gres/gpu=8"},
        # What is said of bob alone counts instead of what counts for each member.
        "bob in genes": {"Fairshare": "7", "GrpTRES": "gres/gpu=12", "GrpJobs": "3", "MaxJobsAccrue": "2"},
        "kim in fish": {"Fairshare": "1", "GrpTRES": "gres/gpu=8"},
    }


def test_a_tier() -> None:
    text = """\
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [cpu]}}
tiers:
  usual: {priority: 5, default: true, renamed_from: normal}
  high:
    priority: 9
    preempts: [usual]
    when_preempted: requeue
    grace_time: 00:01:08
    protected_time: 00:10:00
    max_time: 1-00:00:30
    gpus: 64
    gpus_per_user: 4
    cpus_per_user: 8
    gpus_per_job: 2
    jobs_per_user: 3
    submitted_jobs_per_user: 6
    usage_percent: 150
    settings: {flags: "NoReserve,DenyOnLimit", MaxTRESPU: "node=3", LimitFactor: "2"}
"""
    usual, high = account_tree(loads(HEAD + text)).qos
    assert (usual.name, usual.renamed_from) == ("usual", "normal")
    assert {key: value for key, value in high.settings.items() if value} == {
        "Priority": "9",
        "Preempt": "usual",
        "PreemptMode": "requeue",
        "GraceTime": "68",
        "PreemptExemptTime": "600",
        "MaxWall": "86460",
        "GrpTRES": "gres/gpu=64",
        "MaxTRESPerUser": "cpu=8,gres/gpu=4,node=3",
        "MaxTRESPerJob": "gres/gpu=2",
        "MaxJobsPerUser": "3",
        "MaxSubmitJobsPerUser": "6",
        "UsageFactor": "1.500000",
        "Flags": "DenyOnLimit,NoReserve",
        "LimitFactor": "2.000000",
    }


def test_settings_that_sacctmgr_does_not_have() -> None:
    text = "departments:\n  - {name: bio, partition: {node_groups: [cpu]}, settings: {Colour: red}}\n"
    with pytest.raises(SiteError, match="account bio has no setting 'Colour'; sacctmgr has: DefaultQOS, "):
        account_tree(loads(HEAD + text + TIERS))


# Whatever passes validation reaches slurmdbd as it is.

NASTY = (
    "a b",
    "a'b",
    'a"b',
    "a;b",
    "a%b",
    "a,b",
    "a=b",
    "a:b",
    "a|b",
    "a\nb",
    "-a",
    "ä",
    "A",
    "a" * 300,
    "",
    "a`b",
    "$(a)",
)


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize(
    "place",
    [
        "departments:\n  - {{name: {0}, partition: {{node_groups: [cpu]}}}}\n" + TIERS,
        "departments:\n  - {{name: b, members: [{0}], partition: {{node_groups: [cpu]}}}}\n" + TIERS,
        "departments:\n  - {{name: b, renamed_from: {0}, partition: {{node_groups: [cpu]}}}}\n" + TIERS,
        "departments:\n  - {{name: b, partition: {{node_groups: [cpu]}}}}\n"
        "tiers: {{{0}: {{priority: 1, default: true}}}}\n",
    ],
)
def test_names_that_could_be_more_than_names_are_findings(place: str, name: str) -> None:
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    text = place.replace("{{", "{").replace("}}", "}").replace("{0}", quoted)
    with pytest.raises(InvalidSiteError):
        loads(HEAD + text)


NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6) | st.from_regex(
    r"[a-z][a-z0-9_.-]{0,4}", fullmatch=True
)
WORD = st.sampled_from(
    ["GrpTRES", "MaxJobs", "GrpWall", "QOS", "DefaultQOS", "Fairshare", "MaxTRES", "Colour"]
)
VALUE = st.text("ab1=,:/+-'\";%\n |", max_size=8) | st.sampled_from(
    [
        "cpu=4",
        "gres/gpu:a100=2,cpu=1",
        "7",
        "2-00:00:00",
        "normal",
        "parent",
        "1:MaxJobs=9",
        "cpu=1 Priority=9",
    ]
)


def dumped(name: str, user: str, word: str, value: str) -> str:
    """A site, as JSON, which is YAML."""
    import json

    lab = {"name": "lab", "members": [user], "settings": {word: value}}
    department = {"name": name, "partition": {"node_groups": ["cpu"]}, "labs": [lab]}
    return HEAD + "departments: " + json.dumps([department]) + "\n" + TIERS


@given(NAME, NAME, WORD, VALUE)
@settings(max_examples=300, deadline=None)
def test_whatever_passes_is_told_word_for_word(name: str, user: str, word: str, value: str) -> None:
    try:
        site = loads(dumped(name, user, word, value))
        tree = account_tree(site)
    except (InvalidSiteError, SiteError):
        return
    check_calls(site, tree)


@given(
    st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True),
    st.from_regex(r"[a-z_][a-z0-9_.-]{0,8}", fullmatch=True),
    st.sampled_from([("GrpTRES", "cpu=4,gres/gpu:a100=2"), ("GrpWall", "2-00:00:00"), ("MaxJobs", "7")]),
)
@settings(max_examples=100, deadline=None)
def test_ordinary_names_do_pass(name: str, user: str, setting: tuple[str, str]) -> None:
    try:
        site = loads(dumped(name, user, *setting))
    except InvalidSiteError:
        assert name in ("root", "default", "all", "none", "lab") or user == "root"
        return
    check_calls(site, account_tree(site))


def check_calls(site: Site, tree: AccountTree) -> None:
    """Read back what would be told, with a parser of our own, and find the tree in it."""
    found = difference(tree, EMPTY)
    calls = additions(found)
    (load,) = (call for call in calls if call.argv[0] == "load")
    accounts, people = parse_load(load.stdin)
    assert accounts == {
        (each.name, each.parent): {key: value for key, value in each.settings.items() if value}
        for each in tree.accounts
    }
    assert people == {
        (each.user, each.account): {key: value for key, value in each.settings.items() if value}
        for each in tree.associations
    }
    for call in calls:
        for word in call.argv:
            # One word for sacctmgr: nothing that it, or a shell, would take apart or for an option.
            assert re.fullmatch(r"[!-~]+", word)
            assert not word.startswith("-")
            assert shlex.split(word) == [word]


def parse_load(
    text: str,
) -> tuple[dict[tuple[str, str], dict[str, str]], dict[tuple[str, str], dict[str, str]]]:
    """Read a file for `sacctmgr load` as sacctmgr(1) describes it, character by character."""
    accounts: dict[tuple[str, str], dict[str, str]] = {}
    people: dict[tuple[str, str], dict[str, str]] = {}
    parent = "root"
    for line in text.splitlines():
        fields = split_outside_quotes(line)
        kind, dash, name = fields[0].split(" ", 2)
        assert dash == "-"
        options = dict(field.split("=", 1) for field in fields[1:])
        if kind == "Cluster":
            assert (name, options) == ("tiny", {})
        elif kind == "Parent":
            parent = name
        elif kind == "Account":
            accounts[name, parent] = canonical(options)
        else:
            assert kind == "User"
            assert options.pop("DefaultAccount") in {account for account, _ in accounts}
            options.pop("Coordinator", None)
            people[name, parent] = canonical(options)
    return accounts, people


def split_outside_quotes(line: str) -> list[str]:
    fields, quoted = [""], False
    for character in line:
        if character == "'":
            quoted = not quoted
        elif character == ":" and not quoted:
            fields.append("")
        else:
            fields[-1] += character
    assert not quoted
    return fields


def canonical(options: dict[str, str]) -> dict[str, str]:
    words = {
        "MaxTRESPerJob": "MaxTRES",
        "MaxWallDurationPerJob": "MaxWall",
        "MaxTRESMinsPerJob": "MaxTRESMins",
    }
    found = {words.get(key, key): value for key, value in options.items()}
    return {
        key: str(int(value) * 60) if key in ("MaxWall", "GrpWall") else value for key, value in found.items()
    }
