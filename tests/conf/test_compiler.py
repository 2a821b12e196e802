"""What the compiler refuses, and what facts change."""

import pytest

from hpctools.conf import Endpoint, Facts, compile
from hpctools.conf.text import fold, section
from hpctools.errors import SiteError, UsageError
from hpctools.site import loads

TINY = """\
cluster: {name: tiny, slurm: "24.11", controllers: [ctl]}
node_groups:
  - {name: cpu, instance_type: m5.large, count: 2}
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [cpu]}}
tiers:
  normal: {priority: 1, default: true}
"""


def setting(key: str, facts: Facts, path: str = "slurm.conf") -> list[str]:
    lines = compile(loads(TINY), facts).file(path).text.splitlines()
    return [line.split("=", 1)[1] for line in lines if line.startswith(f"{key}=")]


@pytest.mark.parametrize(
    ("release", "parameters", "preempt"),
    [((22, 5, 8), ",preempt_reorder_count=2,preempt_youngest_first", []),
     ((23, 2), "", ["reorder_count=2,youngest_first"]),
     (None, "", ["reorder_count=2,youngest_first"])],
)  # fmt: skip
def test_preemption_words_stand_where_the_release_looks(
    release: tuple[int, ...] | None, parameters: str, preempt: list[str]
) -> None:
    facts = Facts(slurm_version=release)
    assert setting("PreemptParameters", facts) == preempt
    (told,) = setting("SchedulerParameters", facts)
    assert told.endswith("sched_interval=10" + parameters)


@pytest.mark.parametrize(
    ("longest", "minutes"), [("01:00:00", 1440), ("20-00:00:00", 28800), ("365-00:00:00", 43200)]
)
def test_backfill_looks_ahead_as_far_as_slurm_lets_it(longest: str, minutes: int) -> None:
    site = loads(TINY.replace("node_groups: [cpu]", f"node_groups: [cpu], max_time: {longest}"))
    assert f",bf_window={minutes}," in compile(site, Facts()).file("slurm.conf").text


@pytest.mark.parametrize(("release", "plugin"), [((23, 11), []), ((24, 5), ["disabled"])])
def test_no_cgroups(release: tuple[int, ...], plugin: list[str]) -> None:
    facts = Facts(slurm_version=release, cgroup="none")
    assert setting("CgroupPlugin", facts, "cgroup.conf") == plugin
    assert setting("ProctrackType", facts) == ["proctrack/linuxproc"]
    assert setting("PrologFlags", facts) == []


def test_cores_that_the_nodes_do_not_have_are_not_bound() -> None:
    assert setting("TaskPlugin", Facts()) == ["task/affinity,task/cgroup"]
    assert setting("TaskPlugin", Facts(constrain_cores=False)) == ["task/cgroup"]
    assert setting("TaskPlugin", Facts(constrain_cores=False, cgroup="none")) == ["task/none"]


def test_extra_parameters_replace_add_and_leave_out() -> None:
    facts = Facts(extra_parameters={"KillWait": "7", "Licenses": "matlab:3", "MinJobAge": ""})
    assert setting("KillWait", facts) == ["7"]
    assert setting("Licenses", facts) == ["matlab:3"]
    assert setting("MinJobAge", facts) == []


def test_a_value_cannot_begin_a_new_line() -> None:
    with pytest.raises(UsageError, match="cannot stand in a Slurm configuration"):
        compile(loads(TINY), Facts(extra_parameters={"KillWait": "7\nSlurmUser=root"}))
    with pytest.raises(UsageError):
        compile(loads(TINY), Facts(node_endpoints={"cpu-1": Endpoint("10.0.0.1\r", 1)}))


@pytest.mark.parametrize("facts", [Facts(slurm_version=(21, 8)), Facts(node_counts={"cpu": 0})])
def test_what_cannot_be_compiled(facts: Facts) -> None:
    with pytest.raises(SiteError) as caught:
        compile(loads(TINY), facts)
    assert caught.value.remedy


def test_a_file_that_a_bundle_does_not_have() -> None:
    with pytest.raises(
        UsageError, match=r"no file 'x'; it has: slurm.conf, gres.conf, cgroup.conf, slurmdbd.conf"
    ):
        compile(loads(TINY)).file("x")


def test_folding() -> None:
    assert fold(["b-2", "a-1", "b-1", "b-10", "c"]) == "a-1,b-[1-2,10],c"


def test_sections_spell_yes_and_no_and_leave_none_out() -> None:
    assert section("T", {"A": True, "B": False, "C": None, "D": 3}) == "\n# T\nA=yes\nB=no\nD=3\n"
