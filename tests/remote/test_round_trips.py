"""How often a submission waits for the line: at most three times more than `ssh login1 sbatch`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.line import Line, delayed
from bench.login_submit import MORE_ROUND_TRIPS
from hpctools.slurm.run import run
from tests.remote.rig import Rig

SECONDS = 0.15
"""One way: longer than what either end needs to answer."""
TRIES = 5


@contextmanager
def counted(cluster: Rig) -> Iterator[Line]:
    with delayed(cluster.logins[0].port, SECONDS) as line:
        cluster.know(line.port)
        cluster.configure({"login1": line.port})
        yield line


def of_ssh(cluster: Rig) -> Line:
    with counted(cluster) as line:
        config = str(cluster.home / ".ssh/config")
        words = ["sbatch", "--parsable", "/home/lab1/hp-runs/x/job.sh"]
        run(["ssh", "-F", config, "login1", *words], timeout=60, env=cluster.environment)
    return line


def of_us(cluster: Rig) -> Line:
    with counted(cluster) as line:
        done = cluster.run("hp-submit", "--cluster", "uni", "job.sh")
        assert done.returncode == 0, done.stderr
    return line


def test_a_submission_waits_for_three_round_trips_more_than_ssh_at_most(cluster: Rig) -> None:
    """An end that answers late makes one wait seem two: of some tries on a busy machine the fewest count."""
    theirs, ours = [of_ssh(cluster)], [of_us(cluster)]
    while fewest(ours) - fewest(theirs) > MORE_ROUND_TRIPS and len(ours) < TRIES:
        theirs.append(of_ssh(cluster))
        ours.append(of_us(cluster))
    assert len(cluster.jobs) == 2 * len(ours)
    assert {len(line.connections) for line in (*theirs, *ours)} == {1}
    assert fewest(theirs) >= 5, "a connection, keys, a login, a channel, a command"
    assert fewest(ours) - fewest(theirs) <= MORE_ROUND_TRIPS


def fewest(lines: list[Line]) -> int:
    return min(line.round_trips for line in lines)
