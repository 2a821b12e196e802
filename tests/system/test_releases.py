"""What differs between releases, asked of the real daemons (docs/slurm-releases.md has the table)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from hpctools.conf.preflight import preflight
from hpctools.errors import CommandTimeout
from hpctools.sandbox import process, releases
from hpctools.sandbox.releases import Installation
from hpctools.sandbox.rise import up
from hpctools.slurm import versions
from hpctools.slurm.versions import Release
from tests.system.harness import Cluster, cluster_of, until

pytestmark = pytest.mark.releases

SLURM_CONF = """\
ClusterName=probe
SlurmctldHost=ctl-1
AuthType=auth/munge
SlurmUser=slurm
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
{process}
MpiDefault=none
SelectType=select/cons_tres
GresTypes=gpu
{settings}
NodeName=n[1-4] CPUs=8 RealMemory=1000 Gres=gpu:a100:2
PartitionName=p Nodes=n[1-4] {partition}
"""
GRES_CONF = "AutoDetect=off\nNodeName=n[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
WITHOUT_CGROUPS = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"
WITH_CGROUPS = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nPrologFlags=Contain"
PREEMPTION = "PreemptType=preempt/qos\nPreemptMode=CANCEL\n"
BLOCKS = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n"
TREE = "SwitchName=s1 Nodes=n[1-4]\n"
SEVERAL = "- topology: default\n  cluster_default: true\n  flat: true\n"


def since(*release: int) -> Callable[[Release], bool]:
    """From a release on."""
    return lambda installed: installed >= release


def until_before(*release: int) -> Callable[[Release], bool]:
    """Before a release."""
    return lambda installed: installed < release


# Which releases take it without a complaint, what is added to slurm.conf, to its partition, to other files.
CASES: Mapping[str, tuple[Callable[[Release], bool], str, str, Mapping[str, str]]] = {
    "nothing": (since(22, 5), "", "", {}),
    "PreemptParameters": (
        *(versions.knows_preempt_parameters, f"{PREEMPTION}PreemptParameters=youngest_first", "", {}),
    ),
    "preempt words of SchedulerParameters": (
        *(since(22, 5), f"{PREEMPTION}SchedulerParameters=preempt_youngest_first", "", {}),
    ),
    "NamespaceType": (*(versions.calls_job_containers_namespaces, "NamespaceType=namespace/tmpfs", "", {}),),
    "blocks": (
        *(versions.knows_block_sizes, "TopologyPlugin=topology/block", "", {"topology.conf": BLOCKS}),
    ),
    "tree": (since(22, 5), "TopologyPlugin=topology/tree", "", {"topology.conf": TREE}),
    "topology.yaml": (since(22, 5), "", "", {"topology.yaml": SEVERAL}),  # 22.05 and 24.11 do not read it
    "empty topology.yaml": (until_before(25, 5), "", "", {"topology.yaml": ""}),
    "ExtSensorsType": (until_before(24, 11), "ExtSensorsType=ext_sensors/none", "", {}),
    "GetEnvTimeout": (until_before(26, 5), "GetEnvTimeout=2", "", {}),
    "cloud_reg_addrs": (until_before(24, 11), "SlurmctldParameters=cloud_reg_addrs", "", {}),
    "SuspendExcStates": (since(23, 2), "SuspendExcStates=DRAIN", "", {}),
    "HashPlugin": (since(23, 2), "HashPlugin=hash/sha3", "", {}),
    "MetricsType": (since(25, 11), "MetricsType=metrics/openmetrics", "", {}),
    "a partition's Exclusive": (since(26, 5), "", "Exclusive=NODE", {}),
    "a partition's OverSubscribe=EXCLUSIVE": (since(22, 5), "", "OverSubscribe=EXCLUSIVE", {}),
    "a partition's ExclusiveTopo": (since(24, 11), "", "ExclusiveTopo=YES", {}),
    "a partition's PowerDownOnIdle": (since(23, 2), "", "PowerDownOnIdle=YES", {}),
    "cgroup.conf ConstrainKmemSpace": (
        until_before(23, 2),
        "",
        "",
        {"cgroup.conf": "ConstrainKmemSpace=no\n"},
    ),
    "cgroup.conf CgroupAutomount": (until_before(24, 11), "", "", {"cgroup.conf": "CgroupAutomount=yes\n"}),
    "cgroup.conf IgnoreSystemd": (since(22, 5), "", "", {"cgroup.conf": "IgnoreSystemd=yes\n"}),
    "cgroup.conf EnableControllers": (since(24, 5), "", "", {"cgroup.conf": "EnableControllers=yes\n"}),
}


@pytest.fixture(scope="module")
def probed(
    tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str
) -> Iterator[Cluster]:
    """Two nodes, to ask and to break."""
    with cluster_of(tmp_path_factory.mktemp("probed"), site_file, 2, slurm_release) as cluster:
        yield cluster


class Breakable:
    """The cluster whose slurmctld and slurm.conf a test may break.

    Attributes:
        good: slurm.conf as it was.
    """

    def __init__(self, cluster: Cluster, site_file: Path, slurm: str) -> None:
        self._cluster, self._site_file, self._slurm = cluster, site_file, slurm
        self.conf = cluster.sandbox.layout.slurm_conf / "slurm.conf"
        self.good = self.conf.read_text()
        self.inside = cluster.inside
        self.release = _release(cluster)

    @property
    def foreground(self) -> int:
        """The slurmctld that the sandbox has started."""
        return self._cluster.sandbox.running().processes["slurmctld"]

    def heal(self) -> None:
        """Have both as they were. A slurmscriptd that outlives its slurmctld keeps the next one's port."""
        self.conf.write_text(self.good)
        for name in ("slurmctld", "slurmscriptd"):
            self.inside("pkill", "-KILL", "-f", name, check=False)
            until(lambda: self.inside("pgrep", "-f", name, check=False).stdout == "" or None)  # noqa: B023
        up(self._cluster.sandbox, self._site_file, 2, lambda name, seconds: None, slurm=self._slurm)

    def past_a_hang(self, act: Callable[[], None]) -> None:
        """Do it, once more where a slurmctld hangs that may: see `hpctools.sandbox.reconfigure`."""
        try:
            act()
        except CommandTimeout:
            if not (23, 11) <= self.release < (24, 11, 6):
                raise
            self.heal()
            act()


@pytest.fixture
def breakable(probed: Cluster, site_file: Path, slurm_release: str) -> Iterator[Breakable]:
    """The same; whatever becomes of it, the next test has it as it was."""
    made = Breakable(probed, site_file, slurm_release)
    yield made
    made.heal()


@pytest.fixture(scope="module")
def installed(slurm_release: str) -> Installation:
    """The release at hand."""
    return releases.find(slurm_release)


@pytest.mark.parametrize("case", CASES)
def test_words_that_a_release_knows(case: str, installed: Installation) -> None:
    taken, settings, partition, files = CASES[case]
    cgroups = "cgroup.conf" in files or "NamespaceType" in settings
    text = SLURM_CONF.format(
        process=WITH_CGROUPS if cgroups else WITHOUT_CGROUPS, settings=settings, partition=partition
    )
    whole = {"slurm.conf": text, "gres.conf": GRES_CONF, "cgroup.conf": "# nothing\n", **files}
    said = [problem.said for problem in preflight(whole, root=installed.root).problems]
    assert (said == []) is taken(installed.release), said


def test_a_reconfigure_with_a_bad_file(breakable: Breakable) -> None:
    """It ends a slurmctld in the foreground on every release; a daemon from 23.11 on goes on as before."""
    breakable.past_a_hang(lambda: reconfigure_with_a_bad_file(breakable))


def reconfigure_with_a_bad_file(breakable: Breakable) -> None:
    robust = versions.reconfigure_starts_anew(breakable.release)
    conf, good, foreground = breakable.conf, breakable.good, breakable.foreground
    bad = f"{good}PartitionName=bad Nodes=nonesuch\n"
    conf.write_text(bad)
    breakable.inside("scontrol", "reconfigure", check=False)
    until(lambda: not process.alive(foreground) or None)
    conf.write_text(good)
    breakable.inside("unshare", "--uts", "sh", "-c", "hostname ctl-1 && exec slurmctld")
    until(lambda: "UP" in breakable.inside("scontrol", "ping", check=False).stdout or None)
    conf.write_text(bad)
    refused = breakable.inside("scontrol", "reconfigure", check=False)
    conf.write_text(good)
    if robust:
        assert refused.code == 1
        # What comes while it takes up its work again it may leave without an answer (26.05, seen once).
        asked = ("timeout", "5", "scontrol", "show", "partition")
        until(lambda: "PartitionName=nlp" in breakable.inside(*asked, check=False).stdout or None)
    else:
        until(lambda: breakable.inside("pgrep", "slurmctld", check=False).stdout == "" or None)


def test_a_reconfigure_with_another_node(breakable: Breakable) -> None:
    """From 23.11 on a node needs no restart; 22.05 ends at it."""
    breakable.past_a_hang(lambda: reconfigure_with_another_node(breakable))


def reconfigure_with_another_node(breakable: Breakable) -> None:
    foreground = breakable.foreground
    with breakable.conf.open("a") as file:
        file.write("NodeName=late-1 CPUs=2 RealMemory=1000 NodeAddr=127.0.0.1 State=CLOUD\n")
    breakable.inside("scontrol", "reconfigure", check=False)
    if versions.reconfigure_starts_anew(breakable.release):
        until(
            lambda: (
                "CLOUD" in breakable.inside("scontrol", "show", "node", "late-1", check=False).stdout or None
            )
        )
        assert process.alive(foreground)
    else:
        until(lambda: not process.alive(foreground) or None)


def _release(cluster: Cluster) -> Release:
    return versions.parse_release(cluster.sandbox.running().slurm)


def test_what_answers_as_json(probed: Cluster) -> None:
    release = _release(probed)
    for command in ("squeue", "sinfo", "sacct"):
        assert probed.inside(command, "--json").stdout.lstrip().startswith("{"), command
    for command in ("scontrol show node", "sacctmgr show qos", "sdiag"):
        answer = probed.inside(*command.split(), "--json", check=False)
        assert (answer.code == 0) is versions.prints_nodes_as_json(release), command


def test_the_folder_of_a_release_is_never_written_to(probed: Cluster, slurm_release: str) -> None:
    if not slurm_release:
        pytest.skip("the machine's own Slurm has no folder")
    probed.inside("touch", "/usr/written")
    assert probed.inside("ls", "/usr/written").stdout == "/usr/written\n"
    assert not (releases.find(slurm_release).root / "usr/written").exists()
    assert "hpctools" not in probed.inside("ls", "-A", "/mnt").stdout  # the machine's own root is gone
