"""One test for each complaint of the field's trackers that a configuration compiler could have prevented.

Each is named after its complaint; where it was seen stands in the docstring.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpctools.conf import AccountTree, Bundle, Facts, bootstrap_commands, compile
from hpctools.conf.existing.dump import parse_dump
from hpctools.conf.plan.compare import make_plan
from hpctools.conf.plan.live import Live, OnDisk
from hpctools.conf.plan.meaning import read_meaning
from hpctools.conf.plan.model import Need, Plan
from hpctools.conf.plan.shown import Shown
from hpctools.conf.preflight import preflight
from hpctools.doctor.registry import diagnose
from hpctools.sandbox import releases
from hpctools.site import InvalidSiteError, Site, loads
from hpctools.slurm.types import Job
from hpctools.slurm.versions import Release, spell_release
from tests.conf.preflight.deadly import GOOD
from tests.doctor.healthy import HEALTHY, config, node

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "slurm-conf/examples/university/site.yaml"
BURST = ROOT / "tests/golden/power-saving/site.yaml"
SITES = sorted([*ROOT.glob("tests/golden/*/site.yaml"), *ROOT.glob("slurm-conf/examples/*/site.yaml")])
RELEASES: list[Release] = [(22, 5, 8), (24, 11, 5), (26, 5, 5)]


def site(path: Path = REFERENCE, **groups: Mapping[str, Any]) -> Site:
    """A site, with other values for some of its node groups."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for group in document["node_groups"]:
        group.update(groups.get(group["name"], {}))
    return loads(yaml.safe_dump(document, sort_keys=False), str(path))


def settings(bundle: Bundle) -> Mapping[str, str]:
    found = read_meaning({"slurm.conf": bundle.file("slurm.conf").text}).settings
    return {key: setting.value for key, setting in found.items()}


def live(bundle: Bundle, release: Release, *, without: str = "", jobs: tuple[Job, ...] = ()) -> Live:
    """A cluster that runs just this; a file may have gone from its disk meanwhile."""
    texts = {file.path: file.text for file in bundle.files}
    running = Shown(read_meaning(texts), {}, spell_release(release))
    disk = OnDisk({path: text for path, text in texts.items() if path != without})
    return Live(disk, running, bundle.accounts, jobs, release)


def planned(before: Site, after: Site, release: Release, jobs: tuple[Job, ...] = ()) -> Plan:
    facts = Facts(slurm_version=release)
    there = live(compile(before, facts), release, jobs=jobs)
    return make_plan(compile(after, facts), there, folder=Path("/etc/slurm"))


def heaviest(plan: Plan, *areas: str) -> int:
    """The rank of the heaviest need among the changes of some areas."""
    return max(change.needs.rank for change in plan.changes if change.area in areas)


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.parent.name)
def test_slurm_conf_is_rewritten_and_the_accounting_include_is_lost(path: Path) -> None:
    """awsome-distributed-ai #205: nothing of ours lies in a file that the bundle does not bring along."""
    bundle = compile(loads(path.read_text(encoding="utf-8"), str(path)), Facts(slurm_version=(26, 5, 5)))
    paths = {file.path for file in bundle.files}
    included = re.findall(r"(?im)^\s*include\s+(\S+)", "".join(file.text for file in bundle.files))
    assert set(included) <= paths
    assert settings(bundle)["accountingstoragetype"] == "accounting_storage/slurmdbd"
    assert [file.path for file in bundle.files if not file.text.strip()] == []


def test_a_slurm_conf_that_somebody_deleted_is_noticed() -> None:
    """awsome-distributed-ai #205: while slurmctld still runs with it."""
    bundle = compile(site(), Facts(slurm_version=(24, 11, 5)))
    there = live(bundle, (24, 11, 5), without="slurm.conf")
    plan = make_plan(bundle, there, folder=Path("/etc/slurm"))
    assert [(file.path, file.before) for file in plan.files] == [("slurm.conf", None)]


@pytest.mark.parametrize("release", RELEASES, ids=spell_release)
def test_workers_keep_an_old_configuration_until_they_are_told(release: Release) -> None:
    """awsome-distributed-ai #638: whatever nodes read is at least reconfigured, never only written."""
    fewer = {"shared": {"gpus": {"type": "a10g", "count": 4, "share": {"shards_per_gpu": 2}}}}
    plan = planned(site(), site(**fewer), release)
    least = Need.RECONFIGURE if release >= (23, 11) else Need.RESTART_DAEMONS
    assert heaviest(plan, "node", "gres") == least.rank


def test_workers_with_another_slurm_conf_are_named() -> None:
    """awsome-distributed-ai #638: slurmctld says so at their registration, and nobody reads it."""
    line = "error: Node shared-1 appears to have a different slurm.conf than the slurmctld.  This"
    found = diagnose(replace(HEALTHY, log=(line,))).findings
    assert [(name, finding.subject) for name, finding in found] == [
        ("nodes-have-the-same-slurm-conf", "shared-1")
    ]


def test_cluster_id_mismatch_when_slurmctld_starts_before_accounting() -> None:
    """The cluster comes first, then the QoS that partitions name; both before slurmctld's first start."""
    wanted = compile(site()).accounts
    commands = bootstrap_commands(wanted, AccountTree((), (), (), {}, ()))
    assert [command[:2] for command in commands] == [("add", "cluster"), ("add", "qos")]
    assert set(commands[1][2].removeprefix("name=").split(",")) == {qos.name for qos in wanted.qos}


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.parent.name)
def test_a_missing_topology_conf_rejects_jobs(path: Path) -> None:
    """A topology plugin and its file come together, or neither."""
    bundle = compile(loads(path.read_text(encoding="utf-8"), str(path)), Facts(slurm_version=(26, 5, 5)))
    plugin = settings(bundle).get("topologyplugin", "topology/default")
    assert (plugin not in ("topology/default", "topology/flat")) == (
        "topology.conf" in {file.path for file in bundle.files}
    )


@pytest.mark.system
@pytest.mark.releases
def test_an_empty_topology_yaml_ends_slurmctld(slurm_release: str) -> None:
    """Slurm 25.11: known before anything is touched; releases that do not read the file boot."""
    installed = releases.find(slurm_release)
    verdict = preflight({**GOOD, "topology.yaml": ""}, root=installed.root)
    assert verdict.ok == (installed.release < (25, 5))
    if not verdict.ok:
        assert "fatal: Failed to initialize topology plugin" in [problem.said for problem in verdict.problems]


@pytest.mark.system
@pytest.mark.releases
def test_an_empty_include_is_told(slurm_release: str) -> None:
    """Found on HyperPod: slurmctld only logs it, and the settings are missing."""
    files = {**GOOD, "slurm.conf": GOOD["slurm.conf"] + "Include accounting.conf\n", "accounting.conf": ""}
    verdict = preflight(files, root=releases.find(slurm_release).root)
    assert [problem.said for problem in verdict.problems] == [
        's_p_parse_file: file "/etc/slurm/accounting.conf" is empty'
    ]


def test_a_stockout_leaves_nodes_down_for_good() -> None:
    """cluster-toolkit #4940: nodes return by themselves; one that does not come is given up in time."""
    found = settings(compile(site(BURST)))
    assert found["returntoservice"] == "2"
    assert found["resumetimeout"] == "1200"
    told = diagnose(replace(HEALTHY, **config(ReturnToService="0"))).findings
    assert [name for name, _ in told] == ["nodes-come-back-by-themselves"]


def test_exclusive_partitions_block_the_sharing_of_gpus() -> None:
    """cluster-toolkit #3774."""
    document = yaml.safe_load(REFERENCE.read_text(encoding="utf-8"))
    document["departments"][0]["partition"]["over_subscribe"] = "exclusive"
    with pytest.raises(InvalidSiteError, match="exclusive, with the shared GPUs of shared"):
        loads(yaml.safe_dump(document, sort_keys=False), "site.yaml")


def test_a_resume_that_fails_is_heard_of() -> None:
    """cluster-toolkit #3337: the site's program for it reaches Slurm."""
    assert settings(compile(site(BURST)))["resumefailprogram"] == "/etc/slurm/resume-failed"


def test_slurmctld_is_restarted_for_every_update() -> None:
    """cyclecloud-slurm PR #144: a partition's limit takes a reconfigure."""
    document = yaml.safe_load(REFERENCE.read_text(encoding="utf-8"))
    document["departments"][0]["partition"]["max_time"] = "1-00:00:00"
    after = loads(yaml.safe_dump(document, sort_keys=False), "site.yaml")
    for release in RELEASES:
        plan = planned(site(), after, release)
        assert max(change.needs for change in plan.changes) == Need.RECONFIGURE


def test_nodes_that_are_stuck_in_down_and_powered_down_are_named() -> None:
    """cyclecloud-slurm #51: `down~`, which ResumeProgram is never called for."""
    found = diagnose(replace(HEALTHY, **node("DOWN", ("CLOUD", "POWERED_DOWN"), "stuck"))).findings
    assert [name for name, _ in found] == ["nodes-wake-up"]


def test_mig_is_supported() -> None:
    """aws-parallelcluster #4119: a GPU's slices are resources that jobs ask for by profile."""
    sliced = {"type": "a100", "count": 8, "share": {"mig": {"1g.5gb": 7}}}
    bundle = compile(site(reserved={"gpus": sliced}))
    assert "Gres=gpu:a100_1g.5gb:56" in bundle.file("slurm.conf").text
    assert "reserved-[1-4]" in bundle.file("gres.conf").text


def test_custom_resources_are_supported() -> None:
    """aws-parallelcluster #6388: a kind that only the site knows is declared and counted."""
    bundle = compile(site(reserved={"gres": {"matlab": 2}}))
    lines = bundle.file("slurm.conf").text.splitlines()
    assert "matlab" in settings(bundle)["grestypes"].split(",")
    (reserved,) = (line for line in lines if line.startswith("NodeName=reserved-"))
    assert re.search(r"Gres=\S*matlab:2\b", reserved)
    assert re.search(r"(?m)^NodeName=reserved-\S+ Name=matlab Count=2\b", bundle.file("gres.conf").text)


@pytest.mark.parametrize("release", RELEASES, ids=spell_release)
def test_srun_fails_after_growth_because_slurmds_were_not_told(release: Release) -> None:
    """aws-parallelcluster #5538: new nodes take at least a reconfigure, and before 23.11 new daemons."""
    plan = planned(site(), site(reserved={"count": 6}), release)
    least = Need.RECONFIGURE if release >= (23, 11) else Need.RESTART_DAEMONS
    assert heaviest(plan, "node") == least.rank


@pytest.mark.parametrize("release", RELEASES, ids=spell_release)
def test_fewer_mig_slices_set_a_node_invalid(release: Release) -> None:
    """magic_castle #361: a node's resources change only with its slurmd, and while no job holds them."""
    many = {"type": "a100", "count": 8, "share": {"mig": {"1g.5gb": 7}}}
    few = {"type": "a100", "count": 8, "share": {"mig": {"3g.20gb": 2}}}
    job = Job(7, "train", "nlp1", "nlp-lab-a", "nlp", "medium", "RUNNING", nodes=("reserved-1",))
    # Slices beside shards are more than 22.05 can have.
    before, after = (
        site(reserved={"gpus": gpus}, shared={"gpus": {"type": "a10g", "count": 4}}) for gpus in (many, few)
    )
    plan = planned(before, after, release, (job,))
    found = {change.subject: (change.needs, change.jobs) for change in plan.changes if change.key == "Gres"}
    free = Need.RECONFIGURE if release >= (23, 11) else Need.RESTART_DAEMONS
    assert found == {"reserved-1": (Need.DRAIN, (7,)), "reserved-[2-4]": (free, ())}


def test_a_dump_of_sacctmgr_can_be_imported() -> None:
    """coldfront #531."""
    dump = parse_dump("Cluster - 'c':Fairshare=1\nParent - 'root'\nAccount - 'a':Fairshare=2\n")
    assert [(row.name, row.parent, row.settings["Fairshare"]) for row in dump.accounts] == [
        ("a", "root", "2")
    ]


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.parent.name)
def test_a_second_run_changes_nothing(path: Path) -> None:
    """ansible-slurm-appliance PR #185: no second restart, since nothing is left to do."""
    found = loads(path.read_text(encoding="utf-8"), str(path))
    # What only later releases have, blocks and more folders of a job container, is refused before.
    late = path.parent.name in ("blocks", "centre")
    for release in RELEASES[late:]:
        plan = planned(found, found, release)
        assert (plan.changes, [file.path for file in plan.files]) == ((), [])


def test_powered_down_cloud_nodes_are_hidden() -> None:
    """Measured: without PrivateData=cloud nobody sees them before 23.02."""
    early = settings(compile(site(BURST), Facts(slurm_version=(22, 5, 8))))
    assert "cloud" in early["privatedata"].split(",")
    assert "privatedata" not in settings(compile(site(BURST), Facts(slurm_version=(24, 11, 5))))


def test_rates_of_coming_and_going_are_the_sites_own() -> None:
    """Measured: Slurm's defaults are 300 and 60 nodes a minute, too few for a large burst."""
    found = settings(compile(site(BURST)))
    assert (found["resumerate"], found["suspendrate"]) == ("100", "0")
