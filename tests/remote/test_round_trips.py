"""How often a submission waits for the line: at most three times more than `ssh login1 sbatch`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.line import Line, delayed
from bench.login_submit import COUNTED_SECONDS, MORE_ROUND_TRIPS, name_service, service
from hpctools.slurm.run import run
from tests.remote.rig import Rig

SECONDS = 0.15
"""One way: longer than what either end needs to answer."""
TRIES = 5
ASKING = 3
"""What asking the service takes."""


@contextmanager
def counted(cluster: Rig, seconds: float = SECONDS) -> Iterator[Line]:
    with delayed(cluster.logins[0].port, seconds) as line:
        cluster.know(line.port)
        cluster.configure({"login1": line.port})
        yield line


def of_ssh(cluster: Rig, seconds: float = SECONDS) -> Line:
    with counted(cluster, seconds) as line:
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


def test_asking_the_service_over_tls_keeps_it_within_three_more(cluster: Rig) -> None:
    """Of the service it is a connection, TLS 1.3 and the question, so none is left for the node."""
    theirs, ours = [of_ssh(cluster, COUNTED_SECONDS)], [of_us_asking(cluster)]
    while fewest(ours) + ASKING > fewest(theirs) + MORE_ROUND_TRIPS and len(ours) < TRIES:
        theirs.append(of_ssh(cluster, COUNTED_SECONDS))
        ours.append(of_us_asking(cluster))
    assert fewest(ours) + ASKING <= fewest(theirs) + MORE_ROUND_TRIPS


def of_us_asking(cluster: Rig) -> Line:
    """The line to the login node, when the service's answer was in time."""
    for _ in range(TRIES):
        with (
            counted(cluster, COUNTED_SECONDS) as line,
            service() as api,
            delayed(api.port, COUNTED_SECONDS) as place,
        ):
            name_service(cluster, place.port)
            done = cluster.run("hp-submit", "--cluster", "uni", "job.sh", SSL_CERT_FILE=str(api.authorities))
        assert done.returncode == 0, done.stderr
        if not done.stderr:
            assert place.connections == [ASKING]
            return line
    raise AssertionError(done.stderr)


def fewest(lines: list[Line]) -> int:
    return min(line.round_trips for line in lines)
