"""A login node dies in the middle of a submission to a real Slurm: all of it at once, wherever it was.

What runs there for the submission (sshd's session, hp-submit, sbatch) is killed at drawn moments; the laptop
goes on through the other login node. Its sshd itself stays, so that one cluster serves all moments.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import pytest

from hpctools.remote import diary
from hpctools.remote.placement import own_order
from tests.system.harness import Cluster, until
from tests.system.test_remote import USER, Laptop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FEW, MANY = 6, 60
JITTER_SECONDS = 0.3
SBATCH = """\
#!/bin/sh
# The site's own: what it does takes a while, so that it can be met at any point.
sleep 0.2; /usr/bin/sbatch "$@"; code=$?; touch "$HOME/slow/sent"; sleep 0.5; exit $code
"""
ELASTIC = ("--nodes", "1:2", "-pnlp", "-t", "5", "--hold", "--", "sleep", "60")
PLAIN = ("--hold", "job.sh")


@pytest.fixture
def laptop(cluster: Cluster, tmp_path: Path) -> Iterator[Laptop]:
    yield Laptop(tmp_path, cluster)
    cluster.inside("scancel", "-u", USER)


@pytest.fixture
def slow_sbatch(cluster: Cluster) -> Iterator[Path]:
    """The real sbatch, slowly; the file that is there as soon as it has submitted."""
    startup, folder = cluster.home(USER) / ".bashrc", cluster.home(USER) / "slow"
    before = startup.read_text()
    folder.mkdir()
    owner = cluster.home(USER).stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    (folder / "sbatch").write_text(SBATCH)
    (folder / "sbatch").chmod(0o755)
    startup.write_text(f'{before}export PATH="$HOME/slow:$PATH"\n')
    yield folder / "sent"
    startup.write_text(before)
    shutil.rmtree(folder)


class Node:
    """The login node that this person goes to first."""

    def __init__(self, laptop: Laptop) -> None:
        self.name, self.other = own_order(USER, list(laptop.ports))
        sshd = re.compile(rf"sshd\b.*-p {laptop.ports[self.name]}\b")
        found = [pid for pid in pids() if sshd.search(words(pid))]
        # Whoever started it may have the same words.
        (self.sshd,) = set(found) - {parent(pid) for pid in found}

    def processes(self) -> list[int]:
        """All that its sshd has started, parents first."""
        parents = {pid: parent(pid) for pid in pids()}
        found = [self.sshd]
        for each in found:  # grows meanwhile
            found += [pid for pid, above in parents.items() if above == each]
        return found[1:]

    def die(self) -> int:
        """Kill them all; none sees another one die. Returns how many there were."""
        killed: set[int] = set()
        while alive := set(self.processes()):
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in alive:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            killed |= alive
        return len(killed)

    def runs(self, program: str) -> bool:
        """Whether it has a process with such a word in its command line."""
        return any(program in words(pid) for pid in self.processes())


def pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def words(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def parent(pid: int) -> int:
    """0 when it is gone, or waits for its parent to notice that it is."""
    with suppress(OSError):
        state, above = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return 0 if state == "Z" else int(above)
    return 0


def moments(node: Node, own: Path, sent: Path) -> dict[str, Callable[[], bool]]:
    """What may be seen of a submission, in the order in which it comes."""

    def record(state: str) -> bool:
        with suppress(OSError):
            return f'"{state}"' in (own / "record.json").read_text()
        return False

    return {
        "a session": lambda: bool(node.processes()),
        "hp-submit": lambda: node.runs("--stdin-request"),
        "its folder": own.exists,
        "a claim": lambda: any(own.glob("claim.*")),
        "the mark": lambda: record("submitting"),
        "sbatch": lambda: node.runs("sbatch --parsable"),
        "its job": sent.exists,
        "its answer": lambda: record("submitted"),
    }


def start(laptop: Laptop, name: str, asked: Sequence[str]) -> Popen[str]:
    """hp-submit on the laptop, under an id that is stated, so that its folder is known."""
    return laptop.start("hp-submit", "--cluster", "uni", "--json", "--submission", name, *asked)


def submitted(laptop: Laptop, process: Popen[str], name: str, asked: Sequence[str]) -> dict[str, object]:
    """What it says in the end; a line that gives up is repeated, as it says."""
    out, err = process.communicate(timeout=150)
    for _ in range(3):
        if process.returncode == 0:
            said: dict[str, object] = json.loads(out)
            return said
        assert f"--submission {name}" in err, err
        process = start(laptop, name, asked)
        out, err = process.communicate(timeout=150)
    raise AssertionError(err)


def jobs_of(cluster: Cluster, said: dict[str, object]) -> list[int]:
    """All jobs that Slurm has of a submission, whatever became of them."""
    suffix = str(said["id"]).rpartition("-")[2]
    if said["elastic"]:
        return [job.id for job in cluster.jobs(USER) if job.comment.endswith(f"-{suffix}")]
    listed = cluster.inside("squeue", "-h", "-tall", "-o", "%i %o").stdout
    return [int(line.split()[0]) for line in listed.splitlines() if f"/{said['id']}/" in line]


def test_a_login_node_that_dies_anywhere_makes_one_job(
    laptop: Laptop, cluster: Cluster, slow_sbatch: Path, thorough: bool
) -> None:
    draw = random.Random(7)
    node = Node(laptop)
    killed = 0
    for number in range(MANY if thorough else FEW):
        asked = ELASTIC if number % 3 == 2 else PLAIN
        name = f"{'sleep' if asked is ELASTIC else 'job.sh'}-{draw.getrandbits(48):012x}"
        own = cluster.home(USER) / "hp-runs" / name / ".hpctools"
        known = list(moments(node, own, slow_sbatch).items())
        # Of a job and of a run what is hardest; whatever is drawn afterwards.
        what, seen = known[-2] if number in (1, 2) else draw.choice(known)
        pause = draw.uniform(0, JITTER_SECONDS)
        slow_sbatch.unlink(missing_ok=True)
        process = start(laptop, name, asked)
        end = time.monotonic() + 60
        while not seen() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(pause)
        killed += node.die() > 0
        said = submitted(laptop, process, name, asked)
        where = f"killed at {what} and {pause:.3f} s"
        assert jobs_of(cluster, said) == [said["job_id"]], where
        laptop.configure({node.other: laptop.ports[node.other]})
        again = submitted(laptop, start(laptop, name, asked), name, asked)
        assert (again, jobs_of(cluster, said)) == (said, [said["job_id"]]), where
        laptop.configure(laptop.ports)
    assert killed >= FEW // 2, "most of them are killed in time"


def test_a_slurmctld_that_stood_still_takes_one_job_of_a_node_that_died(
    laptop: Laptop, cluster: Cluster
) -> None:
    """sbatch's request waits there for longer than anybody waits for its job, and is taken up at last."""
    name, node = "job.sh-0123456789ab", Node(laptop)
    # As of an id that the laptop made: of one that it does not know Slurm is asked before anything is sent.
    diary.note({"HOME": str(laptop.home)}, name, "uni")
    cluster.inside("pkill", "-STOP", "-x", "slurmctld")
    try:
        process = start(laptop, name, PLAIN)
        until(lambda: node.runs("sbatch --parsable") or None, 60)
        time.sleep(2)  # it has connected, and sent what it had to say
        assert node.die()
        time.sleep(18)
    finally:
        cluster.inside("pkill", "-CONT", "-x", "slurmctld")
    said = submitted(laptop, process, name, PLAIN)
    assert jobs_of(cluster, said) == [said["job_id"]]
