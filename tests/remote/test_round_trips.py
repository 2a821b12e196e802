"""How often a submission waits for the line: at most three times more than `ssh login1 sbatch`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.line import Line, delayed
from bench.login_submit import MORE_ROUND_TRIPS
from hpctools.slurm.run import run
from tests.remote.rig import Rig

SECONDS = 0.15
"""One way: longer than what either end needs to answer, also on a busy machine."""


@contextmanager
def counted(cluster: Rig) -> Iterator[Line]:
    with delayed(cluster.logins[0].port, SECONDS) as line:
        cluster.know(line.port)
        cluster.configure({"login1": line.port})
        yield line


def test_a_submission_waits_for_three_round_trips_more_than_ssh_at_most(cluster: Rig) -> None:
    with counted(cluster) as theirs:
        config = str(cluster.home / ".ssh/config")
        words = ["sbatch", "--parsable", "/home/lab1/hp-runs/x/job.sh"]
        run(["ssh", "-F", config, "login1", *words], timeout=60, env=cluster.environment)
    with counted(cluster) as ours:
        done = cluster.run("hp-submit", "--cluster", "uni", "job.sh")
        assert done.returncode == 0, done.stderr
    assert len(cluster.jobs) == 2
    assert [len(theirs.connections), len(ours.connections)] == [1, 1]
    assert theirs.round_trips >= 5, "a connection, keys, a login, a channel, a command"
    assert ours.round_trips - theirs.round_trips <= MORE_ROUND_TRIPS
