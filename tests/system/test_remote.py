"""A laptop, real login nodes and a real Slurm: `hp-submit --cluster` and what follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.cut import Cutter, cutter
from tests.system.harness import Cluster, until

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "slurm-conf/examples/university/train"
USER = "nlp1"


class Laptop:
    """A machine without Slurm, whose owner is a researcher."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.home, self.cluster = folder, cluster
        self.ports = {
            name: cluster.sandbox.running().ports[f"sshd-{name}"] for name in ("login-1", "login-2")
        }
        (folder / ".ssh").mkdir()
        (folder / "job.sh").write_text('#!/bin/bash\n#SBATCH -pnlp\nprintf "%s|" "$@"\nhostname\n')
        self.configure(self.ports)

    def configure(self, ports: dict[str, int]) -> None:
        """Write down how the login nodes are reached, in order."""
        ssh = self.home / ".ssh"
        hosts = "".join(f"Host {n}\n  HostName 127.0.0.1\n  Port {p}\n" for n, p in ports.items())
        common = f"Host *\n  User {USER}\n  IdentityFile {self.cluster.sandbox.layout.key}\n"
        (ssh / "config").write_text(f"{hosts}{common}  UserKnownHostsFile {ssh}/known_hosts\n")
        public = (self.cluster.sandbox.layout.tree / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
        key = " ".join(public.split()[:2])
        (ssh / "known_hosts").write_text("".join(f"[127.0.0.1]:{p} {key}\n" for p in ports.values()))
        (self.home / "clusters.yaml").write_text(f"clusters: {{uni: [{', '.join(ports)}]}}\ndefault: uni\n")

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A command on it."""
        with self.start(program, *words) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, program: str, *words: str) -> subprocess.Popen[str]:
        """The same, not waited for."""
        ours = {"HOME": str(self.home), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        ours |= {"HPCTOOLS_SSH_CONFIG": str(self.home / ".ssh/config")}
        ours |= {"HPCTOOLS_CLUSTERS": str(self.home / "clusters.yaml")}
        module = f"hpctools.cli.{program.replace('-', '_')}"
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env={**{k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SSH_"))}, **ours},
        )

    def submit(self, *words: str) -> dict[str, object]:
        """`hp-submit --cluster`, which has to succeed."""
        done = self.run("hp-submit", "--cluster", "uni", "--json", *words)
        assert done.returncode == 0, done.stderr
        said: dict[str, object] = json.loads(done.stdout)
        return said

    def lose_the_answer(self, name: object) -> None:
        """As if the login node had died right after sbatch's request went out."""
        path = self.cluster.home(USER) / f"hp-runs/{name}/.hpctools/record.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "state": "submitting", "job_id": None, "run": ""}))


@pytest.fixture
def laptop(cluster: Cluster, tmp_path: Path) -> Iterator[Laptop]:
    yield Laptop(tmp_path, cluster)
    cluster.inside("scancel", "-u", USER)


def jobs_of(cluster: Cluster, name: object) -> list[int]:
    """Jobs of a submission that Slurm knows."""
    said = cluster.inside("squeue", "-h", "-tall", "-o", "%i %o").stdout
    return [int(line.split()[0]) for line in said.splitlines() if f"/{name}/" in line]


@pytest.mark.releases
def test_from_a_laptop_to_results(laptop: Laptop, cluster: Cluster) -> None:
    """Words arrive as they were; output, state and files come back; Slurm knows the job by its script."""
    (laptop.home / "data.csv").write_text("1,2\n")
    said = laptop.submit("--upload", "data.csv", "job.sh", "a b", "c'd\ne", "")
    name, job = said["id"], int(str(said["job_id"]))
    assert jobs_of(cluster, name) == [job]
    log = laptop.run("hp-logs", "--follow", str(name))
    node = cluster.ended(job, USER).nodes[0]
    assert (log.returncode, log.stdout) == (0, f"a b|c'd\ne||{node}\n"), log.stderr
    assert log.stderr == f"hp-logs: job {job} COMPLETED\n"
    assert f"job         {job} COMPLETED\n" in laptop.run("hp-status", "--cluster", "uni", str(name)).stdout
    done = laptop.run("hp-fetch", str(name), "--to", "results")
    assert done.stdout.splitlines() == [f"results/{n}" for n in ("data.csv", "job.sh", f"slurm-{job}.out")]
    assert (laptop.home / f"results/slurm-{job}.out").read_text() == log.stdout


ACCOUNTED = """\
import sys; from pathlib import Path; from hpctools.slurm import scripts
scripts._queued = lambda *asked: {}
print(*scripts.jobs_from(Path(sys.argv[1]), sys.argv[2], 60.0, sys.argv[1] + "/job.sh"))
"""


@pytest.mark.releases
def test_a_job_that_slurmctld_forgot_is_known_to_the_accounting(laptop: Laptop, cluster: Cluster) -> None:
    """By its script, although its words hold line breaks; one that reads a file of its folder is another."""
    said = laptop.submit("job.sh", "two\nlines", "a|b")
    folder = str(said["folder"])
    other = cluster.submit(USER, "-pnlp", "--wrap", f"cat {folder}/job.sh.copy")
    for job in (int(str(said["job_id"])), other):
        cluster.ended(job, USER)
    ask = (sys.executable, "-c", ACCOUNTED, folder, USER)
    inside = lambda: cluster.inside("env", f"PYTHONPATH={ROOT}", *ask, user=USER).stdout  # noqa: E731
    assert until(lambda: inside().split() or None, 60) == [str(said["job_id"])]


@pytest.mark.releases
def test_an_answer_that_was_lost_is_found_in_the_queue(laptop: Laptop, cluster: Cluster) -> None:
    """Of a plain job by its script, of an elastic run by its comment; nothing is submitted again."""
    first = laptop.submit("--hold", "job.sh")
    laptop.lose_the_answer(first["id"])
    assert laptop.submit("--submission", str(first["id"]), "--hold", "job.sh") == first
    assert jobs_of(cluster, first["id"]) == [first["job_id"]]
    words = ["--nodes", "1:2", "-pnlp", "-t", "5", "--hold", "--", "sleep", "60"]
    run = laptop.submit(*words)
    laptop.lose_the_answer(run["id"])
    assert laptop.submit("--submission", str(run["id"]), *words) == run
    comments = [job.comment for job in cluster.jobs(USER)]
    assert comments.count(f"hp-run:{run['run']}") == 1
    ended = laptop.run("hp-cancel", "--cluster", "uni", str(run["id"]), str(first["id"]))
    assert (ended.returncode, f"{first['id']}: cancelled job {first['job_id']}" in ended.stdout) == (0, True)


@pytest.mark.releases
def test_a_job_whose_answer_was_lost_is_read_and_cancelled(laptop: Laptop, cluster: Cluster) -> None:
    """Nobody is told to submit it again, and it does not run on unseen."""
    (laptop.home / "job.sh").write_text("#!/bin/bash\n#SBATCH -pnlp -t5\necho begun\nsleep 300\n")
    first, second = laptop.submit("job.sh"), laptop.submit("--hold", "job.sh")
    for said in (first, second):
        laptop.lose_the_answer(said["id"])
    log = until(lambda: ((done := laptop.run("hp-logs", str(first["id"]))).stdout and done) or None, 60)
    assert (log.returncode, log.stdout, log.stderr) == (0, "begun\n", "")
    for said in (first, second):
        ended = laptop.run("hp-cancel", "--cluster", "uni", str(said["id"]))
        assert (ended.returncode, ended.stdout) == (0, f"{said['id']}: cancelled job {said['job_id']}\n")
        assert cluster.ended(int(str(said["job_id"])), USER).state == "CANCELLED"


def test_tasks_of_an_array_are_found_by_their_number(laptop: Laptop, cluster: Cluster) -> None:
    """Whatever their files are called; while some wait there is no one file to follow."""
    (laptop.home / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH -pnlp -t5 --array=0-3%1 --output=run-%a.out\necho task $SLURM_ARRAY_TASK_ID\n"
    )
    said = laptop.submit("--hold", "job.sh")
    refused = laptop.run("hp-logs", "--follow", str(said["id"]))
    assert (refused.returncode, "follow one of its tasks: hp-logs --follow --task N" in refused.stderr) == (
        2,
        True,
    )
    cluster.inside("scontrol", "release", str(said["job_id"]))
    log = laptop.run("hp-logs", "--follow", "--task", "2", str(said["id"]))
    assert (log.returncode, log.stdout) == (0, "task 2\n"), log.stderr


def test_a_line_that_breaks_makes_one_job(laptop: Laptop, cluster: Cluster) -> None:
    """In the key exchange, at the login, in the request, in the answer."""

    def submitted(*budget: int) -> Cutter:
        with cutter(laptop.ports["login-1"], *budget) as line:
            # The first of this person's own order.
            laptop.configure({"login-1": line.port, "login-2": laptop.ports["login-2"]})
            said = laptop.submit("--hold", "job.sh")
        assert jobs_of(cluster, said["id"]) == [said["job_id"]]
        return line

    whole = submitted().carried
    assert [submitted(whole * part // 100).cut for part in (40, 60, 75, 85, 95)] == [1] * 5


def test_a_python_file_trains_elastically(laptop: Laptop, cluster: Cluster) -> None:
    """`hp-submit --cluster uni train.py --nodes 2:8`, with as many nodes as there are here."""
    for name in ("train.py", "charlm.py"):
        (laptop.home / name).write_text((TRAIN / name).read_text())
    before = ("-pnlp", "--exclusive", "-t5", "--upload", "charlm.py")
    said = laptop.submit(*before, "train.py", "--nodes", "2:3", "--steps", "20")
    assert (said["elastic"], str(said["run"]).startswith("train-")) == (True, True)
    log = laptop.run("hp-logs", "--follow", str(said["id"]))
    assert log.returncode == 0, f"{log.stdout}\n{log.stderr}"
    assert "epoch 0 step 20 loss " in log.stdout
    assert f"job {said['job_id']} COMPLETED\n" in log.stderr
    status = laptop.run("hp-status", str(said["id"]))
    assert (status.returncode, "finished" in status.stdout) == (0, True), status.stderr
    done = laptop.run("hp-fetch", str(said["id"]), "--to", "results")
    assert {f"results/{n}" for n in ("charlm.py", "train.py", f"slurm-{said['job_id']}.out")} <= set(
        done.stdout.splitlines()
    )


def test_a_script_that_wants_sbatch_quiet_is_submitted(laptop: Laptop, cluster: Cluster) -> None:
    """sbatch does not tell the job's id then: Slurm is asked for it."""
    (laptop.home / "job.sh").write_text("#!/bin/bash\n#SBATCH -pnlp --quiet\n#SBATCH --hold\nhostname\n")
    said = laptop.submit("job.sh")
    assert jobs_of(cluster, said["id"]) == [said["job_id"]]


def test_what_sbatch_refuses_is_refused_in_its_words(laptop: Laptop, cluster: Cluster) -> None:
    done = laptop.run("hp-submit", "--cluster", "uni", "-p", "nowhere", "job.sh")
    assert (done.returncode, done.stdout) == (1, "")
    assert "invalid partition specified: nowhere" in done.stderr
