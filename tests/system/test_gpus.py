"""GPUs on the real daemons: what jobs ask for they get, whole, by shards, by MIG slices, and nothing else."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpctools import site
from hpctools.conf.gres_check import explain
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.slurm.versions import keeps_whole_gpus_from_shards, parse_release
from tests.system.harness import Cluster, until

pytestmark = pytest.mark.releases

GOLDEN = Path(__file__).parents[1] / "golden"
USERS = ("eve", "ben")

# Which of the machine's device nodes the job may open (no driver answers, which is another error), and what
# Slurm told it. Asked twice: the GPUs are its own from the first time to the second at least.
PROBE = """\
#!/usr/bin/python3 -IS
import errno, glob, json, os, sys, time
def mine(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return error.errno != errno.EPERM
    return True
start = time.time()
devices = [p for p in glob.glob('/dev/nvidia*[0-9]') + glob.glob('/dev/nvidia-caps/*') if mine(p)]
time.sleep(float(sys.argv[2]))
names = 'CUDA_VISIBLE_DEVICES SLURM_JOB_GPUS SLURM_SHARDS_ON_NODE CUDA_MPS_ACTIVE_THREAD_PERCENTAGE'.split()
told = {name: os.environ[name] for name in names if name in os.environ}
seen = {'kind': sys.argv[1], 'node': os.environ['SLURMD_NODENAME'], 'devices': sorted(devices), 'told': told}
print(json.dumps({**seen, 'user': os.environ['USER'], 'start': start, 'end': time.time()}))
"""


@dataclass(frozen=True)
class Seen:
    """What a job saw.

    Attributes:
        kind: what it asked for.
        devices: those of its node's devices that it could open.
        told: what Slurm put into its environment.
        start: Unix seconds of a moment when the GPUs were its own; so is `end`.
    """

    kind: str
    node: str
    devices: tuple[str, ...]
    told: dict[str, str]
    user: str
    start: float
    end: float


OWN = {
    "whole-1": {f"/dev/nvidia{n}" for n in range(4)},
    "shard-1": {f"/dev/nvidia{n}" for n in range(2)},
    "mps-1": {f"/dev/nvidia{n}" for n in range(2)},
    "hopper-1": {f"/dev/nvidia{n}" for n in range(2)},
    "told-1": {"/dev/nvidia0", *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in range(201, 205))},
    # Three slices of each of two GPUs, with room for seven: files 1 to 6, and 15 to 20.
    "mig-1": {
        *("/dev/nvidia0", "/dev/nvidia1"),
        *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in (*range(1, 7), *range(15, 21))),
    },
}


@contextmanager
def made(state: Path, name: str, release: str) -> Iterator[Cluster]:
    """A cluster of a golden site, with the probe in its people's homes."""
    sandbox = Sandbox(state)
    try:
        up(sandbox, GOLDEN / name / "site.yaml", None, lambda name, seconds: None, slurm=release)
        cluster = Cluster(sandbox)
        for user in USERS:
            cluster.give(user, "probe", PROBE)
            (cluster.home(user) / "probe").chmod(0o755)
        yield cluster
    finally:
        down(sandbox)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory, slurm_release: str) -> Iterator[Cluster]:
    """A cluster with whole GPUs, shards and MPS."""
    with made(tmp_path_factory.mktemp("gpus") / "state", "every-kind-of-gpu", slurm_release) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory, slurm_release: str) -> Iterator[Cluster]:
    """A cluster with MIG slices of two sizes, apart from shards, which 22.05 mixes up with them."""
    with made(tmp_path_factory.mktemp("slices") / "state", "mig-slices", slurm_release) as cluster:
        yield cluster


def start(cluster: Cluster, user: str, kind: str, *words: str, seconds: float = 0) -> int:
    """Submit a job that looks around and stays for `seconds`."""
    argv = [*words, "--mem=10", "-c1", "--output=/home/%u/%j.json", "--error=/home/%u/%j.err"]
    return cluster.submit(user, "-plab", *argv, "--wrap", f"./probe {kind} {seconds}")


def saw(cluster: Cluster, job: int, user: str) -> Seen:
    """What a job saw, when it has ended."""
    assert cluster.ended(job, user, 60).state == "COMPLETED", (cluster.home(user) / f"{job}.err").read_text()
    found = json.loads((cluster.home(user) / f"{job}.json").read_text())
    return Seen(
        **{**found, "devices": tuple(name for name in found["devices"] if name in OWN[found["node"]])}
    )


def look(cluster: Cluster, *words: str, user: str = "eve") -> Seen:
    """Run one job to its end."""
    return saw(cluster, start(cluster, user, "one", *words), user)


def test_nodes_have_what_the_site_says(gpus: Cluster) -> None:
    text = gpus.inside("sinfo", "-hN", "-o", "%N %G %t").stdout
    # slurmctld adds the socket of a GPU, and its type to what is shared of it.
    lines = re.sub(r"\(S:0\)|(?<=mps:)v100:|(?<=shard:)a10g:", "", text).splitlines()
    assert sorted(line.strip() for line in lines) == [
        "mps-1 gpu:v100:2,mps:200 idle",
        "shard-1 gpu:a10g:2,shard:8 idle",
        "whole-1 gpu:a100:4,matlab:2 idle",
    ]


def test_whole_gpus(gpus: Cluster) -> None:
    got = look(gpus, "--gpus=a100:2")
    assert (got.node, got.devices) == ("whole-1", ("/dev/nvidia0", "/dev/nvidia1"))
    assert got.told["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_shard_is_a_part_of_one_gpu(gpus: Cluster) -> None:
    got = look(gpus, "--gres=shard:2")
    assert (got.node, len(got.devices)) == ("shard-1", 1)
    assert got.told["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize("option", ["--gpus=", "--gres=gpu:", "--gpus-per-node="])
def test_a_slice_is_its_gpu_and_both_of_its_capabilities(slices: Cluster, option: str) -> None:
    got = look(slices, "-w", "mig-1", f"{option}a100_3g.20gb:1")
    caps = ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")
    assert (got.node, got.devices) == ("mig-1", (*caps, "/dev/nvidia0"))


def test_slices_of_two_gpus(slices: Cluster) -> None:
    got = look(slices, "-N1", "--gpus=a100_1g.5gb:4")
    caps = sorted(int(name.rpartition("cap")[2]) for name in got.devices if "caps" in name)
    assert caps == [3, 4, 5, 6, 17, 18, 19, 20]
    assert [name for name in got.devices if "caps" not in name] == ["/dev/nvidia0", "/dev/nvidia1"]


def test_slices_whose_files_the_site_states(slices: Cluster) -> None:
    got = look(slices, "-w", "told-1", "--gpus=a100_3g.20gb:2")
    assert set(got.devices) == OWN["told-1"]


def test_a_step_gets_the_slices_of_its_job(slices: Cluster) -> None:
    """A type that began with a digit would be refused here (22.05.8)."""
    words = ["-plab", "--mem=10", "--gpus-per-node=a100_1g.5gb:2", "--output=/home/eve/step.txt"]
    job = slices.submit("eve", *words, "--wrap", "srun printenv CUDA_VISIBLE_DEVICES")
    assert slices.ended(job, "eve").state == "COMPLETED"
    assert (slices.home("eve") / "step.txt").read_text() == "0,1\n"


def test_mps_is_a_percentage_of_one_gpu(gpus: Cluster) -> None:
    got = look(gpus, "--gres=mps:25")
    assert (got.node, len(got.devices)) == ("mps-1", 1)
    assert got.told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"


def test_no_gpus_without_asking(gpus: Cluster) -> None:
    assert look(gpus, "-w", "shard-1").devices == ()


def test_two_users_share_one_gpu_at_the_same_time(gpus: Cluster) -> None:
    """Whoever comes first waits for the other: both hold shards until a file says that both are there."""
    meet = "touch /tmp/met-$USER; until [ -e /tmp/met-eve ] && [ -e /tmp/met-ben ]; do sleep 0.05; done"
    words = ["-plab", "--gres=shard:2", "--mem=10", "-t1", "--output=/home/%u/met.txt"]
    jobs = {user: gpus.submit(user, *words, "--wrap", f"{meet}; echo $SLURM_JOB_GPUS") for user in USERS}
    for user, job in jobs.items():
        assert gpus.ended(job, user, 60).state == "COMPLETED"
    held = {(gpus.home(user) / "met.txt").read_text().strip() for user in USERS}
    assert len(held) == 1
    assert held <= {"0", "1"}


def test_what_is_only_counted(gpus: Cluster) -> None:
    """Custom resources: two licences, so a third job would wait and a job for three never runs."""
    assert look(gpus, "--gres=matlab:2").node == "whole-1"
    refused = gpus.inside("sbatch", "-plab", "--gres=matlab:3", "--wrap", "true", user="eve", check=False)
    assert refused.code != 0
    assert "not available" in refused.stderr


def test_limits_on_gpus_do_not_count_shards(gpus: Cluster) -> None:
    """What the warning of the same name says."""
    user = ["name=ben", "account=lab-a"]
    gpus.inside("sacctmgr", "-i", "modify", "user", *user, "set", "GrpTRES=gres/gpu=0")
    try:
        assert look(gpus, "--gres=shard:1", user="ben").node == "shard-1"
        waiting = start(gpus, "ben", "one", "--gpus=1")
        until(lambda: gpus.job(waiting, "ben").reason == "AssocGrpGRES" or None)
        gpus.inside("scancel", str(waiting))
    finally:
        gpus.inside("sacctmgr", "-i", "modify", "user", *user, "set", "GrpTRES=gres/gpu=-1")


# A GPU that another job has a part of is kept from being given whole from 23.11.5 on only.
WHOLE_BESIDE_PARTS = {"a10g1": ("--gpus=a10g:1",), "v100": ("--gpus=v100:1",), "any": ("--gpus=1",)}
KINDS = {
    "whole1": ("--gpus=a100:1",),
    "whole2": ("-N1", "--gpus=a100:2"),
    "shard1": ("--gres=shard:1",),
    "shard3": ("--gres=shard:3",),
    "mps60": ("--gres=mps:60",),
}
SLICES = {
    "slice1": ("--gpus=a100_1g.5gb:1",),
    "slice2": ("-N1", "--gpus=a100_1g.5gb:2"),
    "slice3": ("--gpus=a100_3g.20gb:1",),
    "h100": ("--gpus=h100_80gb_hbm3:1",),
}


def parts(seen: Seen) -> dict[str, int]:
    """How much of which thing a job holds, in twelfths of a GPU or of a slice."""
    if seen.node in ("mig-1", "told-1"):
        return {name: 12 for name in seen.devices if "caps" in name}
    twelfths = {"shard1": 3, "shard3": 9, "mps60": 7}.get(seen.kind, 12)
    return dict.fromkeys(seen.devices, twelfths)


def hold(cluster: Cluster, kinds: dict[str, tuple[str, ...]], count: int) -> list[Seen]:
    """Run random jobs of two users at once; what each saw."""
    chance = random.Random(20220508)
    asked = [(chance.choice(USERS), chance.choice(list(kinds)), chance.uniform(0.3, 1)) for _ in range(count)]
    jobs = [(start(cluster, user, kind, *kinds[kind], seconds=stay), user) for user, kind, stay in asked]
    return [saw(cluster, job, user) for job, user in jobs]


def assert_nobody_holds_what_another_holds(seen: list[Seen]) -> None:
    """At no instant is more held of a GPU or slice than there is; and some held things at the same time."""
    assert all(parts(each) for each in seen)
    for now in sorted(each.start for each in seen):
        held: Counter[tuple[str, str]] = Counter()
        for each in (each for each in seen if each.start <= now < each.end):
            held.update({(each.node, device): twelfths for device, twelfths in parts(each).items()})
        holders = [each for each in seen if each.start <= now < each.end]
        assert max(held.values(), default=0) <= 12, (held, holders)
    assert sum(a.start < b.end and b.start < a.end for a in seen for b in seen if a is not b) >= 10


def test_nobody_holds_a_gpu_or_shard_that_another_holds(gpus: Cluster) -> None:
    release = parse_release(gpus.inside("slurmd", "-V").stdout)
    more = WHOLE_BESIDE_PARTS if keeps_whole_gpus_from_shards(release) else {}
    assert_nobody_holds_what_another_holds(hold(gpus, KINDS | more, 35))


def test_nobody_holds_a_slice_that_another_holds(slices: Cluster) -> None:
    assert_nobody_holds_what_another_holds(hold(slices, SLICES, 15))


def test_a_node_with_fewer_slices_than_stated_is_explained(slices: Cluster) -> None:
    """Last, since the node is gone afterwards: one of its slices is missing when slurmd looks again."""
    path = slices.sandbox.layout.slurm_conf / "gres.conf"
    path.write_text(path.read_text().replace(slice_line(path.read_text()), ""))
    pid = slices.sandbox.running().processes["slurmd-mig-1"].pid
    os.kill(pid, signal.SIGHUP)

    def reason() -> str | None:
        shown = slices.inside("scontrol", "--oneliner", "show", "node", "mig-1").stdout
        return shown.partition("Reason=")[2] or None

    told = explain("mig-1", until(reason), site.load(GOLDEN / "mig-slices/site.yaml").group("mig").gpus)
    assert told is not None
    assert told.message == "node mig-1 has 5 of the 6 GPUs or MIG slices that its line in slurm.conf states"
    assert "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:4" in told.remedy


def slice_line(text: str) -> str:
    return next(line for line in text.splitlines(keepends=True) if "nvidia-cap20" in line)
