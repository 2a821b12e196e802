"""A program that ends after a pass that was over before its worker came: no run has finished by that."""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_acting import Scene
from test_exits import Play, scene

from hpctools.elastic.protocol import REPLAYED

__all__ = ["scene"]  # the fixture

PROGRAM = """
import os, sys
from hpctools.elastic.early_end import tell_at_exit

class Session:
    is_lone = {lone}
    def tell(self, kind):
        print("told", kind, flush=True)

tell_at_exit(lambda: {replays}, Session())
{end}
"""
FORKS = "os.waitpid(pid, 0) if (pid := os.fork()) else sys.exit()"


@pytest.mark.parametrize(
    ("told", "replays", "lone", "end"),
    [
        (True, True, False, "sys.exit()"),
        (True, True, False, FORKS),
        (False, False, False, "sys.exit()"),
        (False, True, True, "sys.exit()"),
        (False, True, False, "raise ValueError('no such layer')"),
    ],
)
def test_a_program_tells_that_it_ends_after_a_pass_that_it_only_runs_through(
    *, told: bool, replays: bool, lone: bool, end: str
) -> None:
    """Once, though it has forked; and not where an exception says what was wrong."""
    code = PROGRAM.format(replays=replays, lone=lone, end=end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr.count(REPLAYED)) == (("told replays\n", 1) if told else ("", 0))


def says(made: Scene, worker: str) -> None:
    made.hearing.hear(made.run.roster.workers[worker], {"kind": "replays"})


@pytest.mark.parametrize("heard", [True, False])
def test_a_baselines_end_there_fails_the_run_and_says_what_to_do(scene: Play, *, heard: bool) -> None:
    """Also when another coordinator has taken over since, who knows what it printed."""

    def end(made: Scene) -> None:
        if heard:
            says(made, "b0.0.0")
        made.ends("b0.0.0", 0, *([] if heard else [REPLAYED, "a summary"]))
        outcome = made.run.ended.result()
        assert outcome.state == "failed"
        assert outcome.message == f"worker b0.0.0 on n0 ended with exit code 0: {REPLAYED}"
        assert not made.run.finishing

    scene(end)


def test_a_replicas_end_there_gives_its_node_back_and_nothing_else(scene: Play) -> None:
    def end(made: Scene) -> None:
        says(made, "r7.0.0")
        made.ends("r7.0.0", 0)
        assert not made.run.ended.done()
        assert not made.run.finishing
        assert made.run.roster.agents["r7"].reason == "failed"

    scene(end)


def test_once_the_training_is_complete_it_is_an_end_like_another(scene: Play) -> None:
    def end(made: Scene) -> None:
        made.run.completed = True
        says(made, "b0.0.0")
        made.ends("b0.0.0", 0)
        assert not made.run.ended.done()
        assert made.run.finishing

    scene(end)


def test_another_worker_s_end_is_the_programs_and_so_is_that_of_the_next_attempt(scene: Play) -> None:
    """What was said is of one process."""

    def end(made: Scene) -> None:
        says(made, "b0.0.0")
        made.ends("b0.0.1", 0)
        assert not made.run.ended.done()
        assert made.run.finishing

    scene(end)
