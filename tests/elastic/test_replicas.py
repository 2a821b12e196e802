"""Replica jobs: submitted, submitted again, backed off, given up and cancelled, whatever Slurm does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic import preemptors, replicas, yielding
from hpctools.elastic.replicas import Replicas
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit
from hpctools.errors import CommandError, UnreachableError
from hpctools.slurm.types import Job
from hpctools.testing.slurm import FakeSlurm


class Journal:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.jobs: list[tuple[str, int]] = []
        self.limits: list[TimeLimit] = []

    def event(self, event: str, **detail: Any) -> None:
        self.events.append((event, detail))

    def job(self, role: str, job_id: int) -> None:
        self.jobs.append((role, job_id))

    def time_limit(self, limit: TimeLimit) -> None:
        self.limits.append(limit)


class Scene:
    """Replicas of a run with a fake Slurm, a journal, and a clock that the scene moves."""

    def __init__(
        self,
        script: Path,
        sizes: tuple[int, ...] = (1, 2, 3),
        baseline: int | None = None,
        takers: tuple[str, ...] | None = None,
    ) -> None:
        self.slurm = FakeSlurm()
        self.journal = Journal()
        self.now = 0.0
        options = ("--qos=elastic",)
        spec = RunSpec(
            "t-1", "t", "nlp1", "", sizes[0], sizes[-1], 1, ("true",), "/", options, str(script), "now",
            sizes=sizes, takers=takers,
        )  # fmt: skip
        self.replicas = Replicas(
            self.slurm,
            spec,
            self.journal,
            clock=lambda: self.now,
            limit=TimeLimit(baseline),
            wall_clock=lambda: 1_000_000 + self.now,
        )

    def act(self, *acts: Callable[[], Awaitable[None]]) -> None:
        """Keep the replicas while the acts happen one after the other."""

        async def scene() -> None:
            keeping = asyncio.ensure_future(self.replicas.keep())
            for act in acts:
                await asyncio.wait_for(act(), 10)
            self.replicas.stop()
            await asyncio.wait_for(keeping, 10)

        asyncio.run(scene())

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.002)

    def submitted(self, count: int) -> Callable[[], Awaitable[None]]:
        return lambda: self.until(lambda: len(self.slurm.submitted) == count)

    def warnings(self) -> list[str]:
        return [detail["message"] for event, detail in self.journal.events if event == "warning"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(replicas, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(preemptors, "LOOK_SECONDS", 0.005)
    script = tmp_path / "replica.sh"
    script.write_text("#!/bin/sh\n")
    return script


@pytest.fixture
def scene(script: Path) -> Scene:
    return Scene(script)


def of_run(job_id: int, qos: str = "elastic", **more: Any) -> Job:
    """A job of the run that Slurm has, whoever submitted it."""
    known = {"state": "RUNNING", "comment": "hp-run:t-1", "started": 1_000_000, "time_limit": 60, **more}
    return Job(job_id, "t", "nlp1", "nlp", "gpu", qos, **known)


def test_nothing_is_submitted_before_it_is_wanted(scene: Scene) -> None:
    looks = 0

    def wanted() -> bool:
        nonlocal looks
        looks += 1
        assert len(scene.slurm.submitted) == (0 if looks <= 10 else looks - 11)
        return looks > 10

    scene.replicas.are_wanted = wanted
    scene.act(scene.submitted(2))
    assert looks == 12


def test_one_job_a_slot_and_no_more(scene: Scene) -> None:
    async def a_while() -> None:
        await asyncio.sleep(0.05)

    scene.act(scene.submitted(2), a_while)
    ids = [each.job_id for each in scene.slurm.submitted]
    assert [each.options for each in scene.slurm.submitted] == [("--qos=elastic", "--nodes=1")] * 2
    assert scene.journal.jobs == [("replica", job_id) for job_id in ids]


def test_replica_that_served_and_was_preempted_is_submitted_again_at_once(scene: Scene) -> None:
    async def preempt() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.replicas.serves(first, "a")
        scene.slurm.change(first, state="PREEMPTED")
        scene.replicas.gone(first, "a")

    scene.act(scene.submitted(2), preempt, scene.submitted(3))


def test_nodes_of_a_wave_of_preemptions_are_not_asked_for_until_whoever_wants_them_could_have_them_all(
    scene: Scene,
) -> None:
    async def first_leaves() -> None:
        for job, agent in zip(scene.slurm.submitted, "ab", strict=True):
            scene.replicas.serves(job.job_id, agent)
            scene.replicas.yields(job.job_id, agent)
        await ends(0)
        await asyncio.sleep(0.05)
        assert len(scene.slurm.submitted) == 2, "the other one still holds its node"

    async def second_leaves() -> None:
        await ends(1)
        scene.now += yielding.START_SECONDS - 0.1
        await asyncio.sleep(0.05)
        assert len(scene.slurm.submitted) == 2, "Slurm has not yet given the nodes away"
        scene.now += 0.2

    async def ends(place: int) -> None:
        job = scene.slurm.submitted[place].job_id
        scene.slurm.change(job, state="COMPLETED")
        scene.replicas.gone(job, "ab"[place])

    scene.act(scene.submitted(2), first_leaves, second_leaves, scene.submitted(4))


def test_slot_is_not_reused_while_its_job_still_runs(scene: Scene) -> None:
    """An agent may be gone before Slurm has noticed: there would be more jobs than slots."""

    async def lose_agent() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.slurm.change(first, state="RUNNING")
        scene.replicas.serves(first, "a")
        scene.replicas.gone(first, "a")
        await asyncio.sleep(0.05)
        assert len(scene.slurm.submitted) == 2
        scene.slurm.change(first, state="COMPLETED")

    scene.act(scene.submitted(2), lose_agent, scene.submitted(3))


def test_job_that_never_served_is_retried_later_and_later(scene: Scene) -> None:
    async def fail_all() -> None:
        for each in scene.slurm.submitted:
            scene.slurm.change(each.job_id, state="FAILED")
            scene.replicas.gone(each.job_id, "a")

    async def clock(seconds: float) -> None:
        scene.now += seconds

    async def nothing_new() -> None:
        before = len(scene.slurm.submitted)
        await asyncio.sleep(0.05)
        assert len(scene.slurm.submitted) == before

    scene.act(
        scene.submitted(2),
        fail_all,
        nothing_new,
        lambda: clock(1.1),
        scene.submitted(4),
        fail_all,
        nothing_new,
        lambda: clock(1.1),
        nothing_new,
        lambda: clock(1.0),
        scene.submitted(6),
    )


def test_slurm_that_is_down_is_told_once_and_tried_again(scene: Scene) -> None:
    async def down() -> None:
        await scene.until(lambda: bool(scene.warnings()))
        for _ in range(4):
            scene.now += 100
            await asyncio.sleep(0.02)

    async def up() -> None:
        scene.slurm.failure = None
        scene.now += 100

    scene.slurm.failure = UnreachableError("slurmctld does not answer")
    scene.act(down, up, scene.submitted(2))
    assert scene.warnings() == ["cannot see the run's jobs: slurmctld does not answer"]


def test_what_fails_in_turn_is_told_once_each(scene: Scene) -> None:
    """slurmctld goes down when one of two jobs is submitted, and stays so for an hour and a half."""

    def goes_down(job: Job) -> None:
        scene.slurm.failure = UnreachableError("slurmctld does not answer")

    async def wait() -> None:
        for _ in range(180):
            scene.now += 30
            await asyncio.sleep(0.01)

    scene.slurm.on_submit = goes_down
    scene.act(wait)
    assert sorted(scene.warnings()) == [
        "cannot see the run's jobs: slurmctld does not answer",
        "cannot submit a replica job: slurmctld does not answer",
    ]


def test_same_crash_three_times_ends_the_attempts(scene: Scene) -> None:
    async def crash() -> None:
        last = scene.slurm.submitted[-1].job_id
        scene.replicas.serves(last, "a")
        scene.replicas.crashed(last, "ValueError: no such corpus")
        scene.slurm.change(last, state="FAILED")
        scene.replicas.gone(last, "a")

    async def much_later() -> None:
        for _ in range(5):
            scene.now += 100
            await asyncio.sleep(0.02)

    scene.act(scene.submitted(2), crash, much_later, crash, much_later, crash, much_later)
    assert len(scene.slurm.submitted) == 4
    assert scene.warnings() == ["no more replicas: 3 of them failed with: ValueError: no such corpus"]


def test_cancel_tries_again_when_slurm_does_not_answer(scene: Scene) -> None:
    async def cancel() -> None:
        scene.slurm.failure = CommandError("scancel failed", argv=["scancel"], code=1)
        cancelling = asyncio.ensure_future(scene.replicas.cancel_all())
        await scene.until(lambda: bool(scene.warnings()))
        scene.slurm.failure = None
        await cancelling

    scene.act(scene.submitted(2), cancel)
    assert scene.slurm.cancelled == [each.job_id for each in scene.slurm.submitted]


def test_preemptor_is_the_stranger_on_the_node(scene: Scene) -> None:
    own = Job(1, "t", "nlp1", "nlp", "gpu", "elastic", "RUNNING", nodes=("n3",), comment="hp-run:t-1")
    urgent = Job(9, "urgent", "cv1", "cv", "gpu", "high", "RUNNING", nodes=("n3",), started=1_000_009)
    waiting = Job(10, "next", "cv1", "cv", "gpu", "high", "PENDING", nodes=("n3",))

    async def arrive() -> None:
        scene.slurm.queue |= {1: own, 10: waiting}
        finding = asyncio.ensure_future(scene.replicas.find_preemptor("n3", replica=7, told=0))
        await asyncio.sleep(0.02)
        scene.slurm.queue[9] = urgent
        await finding

    scene.act(scene.submitted(2), arrive)
    by = {"job_id": 9, "user": "cv1", "account": "cv", "qos": "high"}
    assert scene.journal.events[-1] == ("preempted_by", {"job_id": 7, "node": "n3", "preempted_by": by})


def test_who_shares_the_node_and_began_before_is_nobody_s_preemptor(scene: Scene) -> None:
    """Nor are replicas asked for again as if the job that wants the node had it."""
    old, other, urgent = (
        Job(number, "t", "nlp2", "nlp", "gpu", "normal", "RUNNING", nodes=("n3",), started=1_000_000 + began)
        for number, began in ((8, -3600), (9, 85), (10, 100))  # the second while the grace time goes by
    )

    async def preempt() -> None:
        scene.slurm.queue |= {8: old, 9: other}
        first = scene.slurm.submitted[0].job_id
        scene.replicas.serves(first, "a")
        scene.replicas.yields(first, "a")
        scene.now = 100
        scene.replicas.gone(first, "a")
        finding = asyncio.ensure_future(scene.replicas.find_preemptor("n3", replica=first, told=40))
        scene.slurm.change(first, state="PREEMPTED")
        await asyncio.sleep(0.02)
        assert scene.journal.events[-1][0] == "submitted"
        assert len(scene.slurm.submitted) == 2, "somebody waits for the node"
        scene.slurm.queue[10] = urgent
        await finding

    scene.act(scene.submitted(2), preempt, scene.submitted(3))
    by = [
        detail["preempted_by"]["job_id"] for event, detail in scene.journal.events if event == "preempted_by"
    ]
    assert by == [10]


def test_who_only_fits_into_a_freed_node_is_nobody_s_preemptor(script: Path) -> None:
    """A job that came after the replica was told, and one of a QoS that takes nothing from replicas."""
    scene = Scene(script, takers=("high",))
    late, humble, urgent = (
        Job(number, "t", "cv1", "cv", "gpu", qos, "RUNNING", nodes=("n3",), submitted=asked, started=began)
        for number, qos, asked, began in (
            (8, "high", 1_000_050, 1_000_101),
            (9, "low", 999_000, 1_000_102),
            (10, "high", 999_990, 1_000_100),
        )
    )

    async def preempt() -> None:
        scene.slurm.queue |= {8: late, 9: humble}
        scene.now = 100
        finding = asyncio.ensure_future(scene.replicas.find_preemptor("n3", replica=7, told=40))
        await asyncio.sleep(0.02)
        assert "preempted_by" not in dict(scene.journal.events)
        scene.slurm.queue[10] = urgent
        await finding

    scene.act(scene.submitted(2), preempt)
    assert dict(scene.journal.events)["preempted_by"]["preempted_by"]["job_id"] == 10


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ("CANCELLED", {"not_preempted": "was cancelled (scancel)"}),
        ("TIMEOUT", {"not_preempted": "ran out of time (--time)"}),
        ("PREEMPTED", {"preempted_by": 9}),
        ("COMPLETED", {"preempted_by": 9}),
    ],
)
def test_a_replica_that_a_person_cancels_is_not_preempted(
    scene: Scene, ended: str, told: dict[str, Any]
) -> None:
    """Its agent gets the same SIGTERM, Slurm says COMPLETING at first, and its node may have another job."""
    other = Job(9, "t", "cv1", "cv", "gpu", "high", "RUNNING", nodes=("n3",), started=1_000_001)

    async def end() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.slurm.change(first, state="COMPLETING")
        scene.slurm.queue[9] = other
        finding = asyncio.ensure_future(scene.replicas.find_preemptor("n3", replica=first, told=0))
        await asyncio.sleep(0.02)
        scene.slurm.change(first, state=ended)
        await finding
        found = [each for each in scene.journal.events if "preempted" in each[0]]
        assert all(detail["job_id"] == first for _, detail in found)
        found_as = {event: detail.get("why") or detail["preempted_by"]["job_id"] for event, detail in found}
        assert found_as == told

    scene.act(scene.submitted(2), end)


def test_a_fault_while_a_preemptor_is_looked_for_does_not_end_the_looking_for_all_times(scene: Scene) -> None:
    jobs = scene.slurm.jobs
    urgent = Job(9, "t", "cv1", "cv", "gpu", "high", "RUNNING", nodes=("n4",), started=1_000_001)

    def broken(**which: Any) -> list[Job]:
        if which.get("nodes"):
            raise ValueError("a fault of ours")
        return jobs(**which)

    async def look() -> None:
        scene.slurm.jobs = broken  # type: ignore[method-assign]
        with pytest.raises(ValueError, match="of ours"):
            await scene.replicas.find_preemptor("n3", replica=7, told=0)
        scene.slurm.jobs = jobs  # type: ignore[method-assign]
        scene.slurm.queue[9] = urgent
        await scene.replicas.find_preemptor("n4", replica=8, told=0)

    scene.act(scene.submitted(2), look)
    assert [each["job_id"] for event, each in scene.journal.events if event == "preempted_by"] == [8]


def test_preemptors_of_several_nodes_are_asked_for_with_one_question(scene: Scene) -> None:
    asked: list[tuple[str, ...]] = []
    jobs = scene.slurm.jobs

    def noted(**which: Any) -> list[Job]:
        asked.append(tuple(which.get("nodes", ())))
        return jobs(**which)

    async def arrive() -> None:
        scene.slurm.jobs = noted  # type: ignore[method-assign]
        for number, node in ((9, "n3"), (10, "n4")):
            scene.slurm.queue[number] = Job(
                number, "urgent", "cv1", "cv", "gpu", "high", "RUNNING", nodes=(node,), started=1_000_001
            )
        finding = (scene.replicas.find_preemptor(node, job, told=0) for node, job in (("n3", 7), ("n4", 8)))
        await asyncio.gather(*finding)

    scene.act(scene.submitted(2), arrive)
    assert [nodes for nodes in asked if nodes] == [("n3", "n4")]
    told = [detail for event, detail in scene.journal.events if event == "preempted_by"]
    assert [(each["job_id"], each["preempted_by"]["job_id"]) for each in told] == [(7, 9), (8, 10)]


def test_while_a_wave_of_replicas_leaves_slurm_is_not_asked_what_became_of_them(scene: Scene) -> None:
    """Nothing could be submitted, and the training needs the cores just then."""
    asked: list[object] = []
    jobs = scene.slurm.jobs

    def noted(**which: Any) -> list[Job]:
        asked.append(which)
        return jobs(**which)

    async def leave() -> None:
        first, second = (each.job_id for each in scene.slurm.submitted)
        for job_id in (first, second):
            scene.replicas.serves(job_id, f"r{job_id}")
            scene.replicas.yields(job_id, f"r{job_id}")
        await asyncio.sleep(0.05)
        scene.slurm.jobs = noted  # type: ignore[method-assign]
        scene.slurm.change(first, state="PREEMPTED")
        scene.replicas.gone(first, f"r{first}")
        await asyncio.sleep(0.05)
        assert asked == []
        scene.now = yielding.START_SECONDS + 1  # the last one only frees its node now
        scene.replicas.gone(second, f"r{second}")
        await asyncio.sleep(0.05)
        assert asked == []
        scene.now += yielding.START_SECONDS

    scene.act(scene.submitted(2), leave, scene.submitted(3))
    assert asked


def test_each_replica_job_has_the_nodes_of_its_step(script: Path) -> None:
    scene = Scene(script, sizes=(1, 2, 4, 8))
    scene.act(scene.submitted(3))
    assert [each.options for each in scene.slurm.submitted] == [
        ("--qos=elastic", "--nodes=1", "--nice=0"),
        ("--qos=elastic", "--nodes=2", "--nice=1"),
        ("--qos=elastic", "--nodes=4", "--nice=2"),
    ]


def test_a_smaller_step_waits_for_the_larger_one_before_it(script: Path) -> None:
    scene = Scene(script, sizes=(1, 5, 6))

    async def alone_for_a_while() -> None:
        await asyncio.sleep(0.05)
        assert [each.options[1] for each in scene.slurm.submitted] == ["--nodes=4"]
        first = scene.slurm.submitted[0].job_id
        scene.slurm.change(first, state="RUNNING")
        scene.replicas.serves(first, "a")

    scene.act(scene.submitted(1), alone_for_a_while, scene.submitted(2))
    assert scene.slurm.submitted[1].options[1] == "--nodes=1"


def test_an_excluded_node_is_not_asked_for_again(scene: Scene) -> None:
    async def exclude() -> None:
        first, second = (each.job_id for each in scene.slurm.submitted)
        for each in (first, second):
            scene.slurm.change(each, state="RUNNING")
        scene.replicas.exclude("n7")
        scene.replicas.exclude("n3")
        scene.replicas.serves(first, "a")
        scene.slurm.change(first, state="FAILED")
        scene.replicas.gone(first, "a")

    scene.act(scene.submitted(2), exclude, scene.submitted(3))
    assert scene.slurm.submitted[2].options == ("--qos=elastic", "--nodes=1", "--exclude=n3,n7")


def test_replica_jobs_end_with_the_run(script: Path) -> None:
    """The baseline began 10.5 minutes ago and has 60: a new replica gets 50, one that started late is cut."""
    scene = Scene(script, baseline=5)
    scene.slurm.queue[5] = of_run(5, "high")
    scene.now = 630

    async def start_late() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.now += 1200
        scene.slurm.queue[first] = of_run(first, started=1_000_000 + int(scene.now), time_limit=50)

    async def is_cut() -> None:
        first, second = (each.job_id for each in scene.slurm.submitted)
        await scene.until(lambda: scene.slurm.queue[first].time_limit == 30)
        await scene.until(lambda: scene.slurm.queue[second].time_limit == 30)

    async def at_the_end() -> None:
        scene.now = 3550
        for each in scene.slurm.submitted:
            scene.slurm.change(each.job_id, state="COMPLETED")
            scene.replicas.gone(each.job_id, "a")
        await asyncio.sleep(0.05)

    scene.act(scene.submitted(2), start_late, is_cut, at_the_end)
    assert [each.options for each in scene.slurm.submitted] == [
        ("--qos=elastic", "--nodes=1", "--time=50")
    ] * 2


def test_a_coordinator_that_takes_over_submits_only_what_is_missing(scene: Scene) -> None:
    scene.slurm.queue |= {
        7: of_run(7, nodes=("n3",)),
        8: of_run(8, state="COMPLETED"),
        9: of_run(9, comment="hp-run:t-2"),
        10: of_run(10, "high", nodes=("n1",)),
    }

    async def a_while() -> None:
        await asyncio.sleep(0.05)

    scene.act(scene.submitted(1), a_while)
    assert len(scene.slurm.submitted) == 1
    assert scene.slurm.cancelled == []


def test_a_coordinator_that_takes_over_notes_also_jobs_that_the_one_before_did_not_come_to_note(
    scene: Scene,
) -> None:
    """Whether they still run or not: what they have used is the run's."""
    scene.slurm.queue |= {
        7: of_run(7, nodes=("n3",)),
        8: of_run(8, state="COMPLETED"),
        9: of_run(9, comment="hp-run:t-2"),
    }
    scene.act(scene.submitted(1))
    (submitted,) = (each.job_id for each in scene.slurm.submitted)
    assert scene.journal.jobs == [("replica", 7), ("replica", 8), ("replica", submitted)]


def test_a_job_that_the_coordinator_before_was_submitting_yet_is_not_there_beside_ours(scene: Scene) -> None:
    """Slurm did not know it when we asked; nobody would ever use its nodes, or give them back."""

    async def it_comes() -> None:
        scene.slurm.queue[7] = of_run(7, nodes=("n7",))
        scene.replicas.serves(7, "r7")
        await scene.until(lambda: bool(scene.slurm.cancelled))

    scene.act(scene.submitted(2), it_comes)
    assert scene.slurm.cancelled == [7]
    assert ("replica", 7) in scene.journal.jobs


def test_a_coordinator_that_takes_over_cancels_what_fits_no_step(script: Path) -> None:
    scene = Scene(script, sizes=(1, 2, 4))
    scene.slurm.queue |= {7: of_run(7, nodes=("n3", "n4")), 8: of_run(8, state="PENDING", started=None)}
    scene.act(scene.submitted(1))
    assert scene.slurm.cancelled == [8]
    assert scene.slurm.submitted[0].options[1] == "--nodes=1"


def test_a_job_that_is_held_has_its_slot(script: Path) -> None:
    """slurmctld holds jobs whose reservation is deleted; another one was submitted beside it."""
    scene = Scene(script, sizes=(1, 2))
    scene.slurm.queue[7] = of_run(7, state="RESV_DEL_HOLD", started=None)

    asked, jobs = 0, scene.slurm.jobs

    def counted(**which: Any) -> list[Job]:
        nonlocal asked
        asked += 1
        scene.now += 11
        return jobs(**which)

    scene.slurm.jobs = counted  # type: ignore[method-assign]
    scene.act(lambda: scene.until(lambda: asked > 3))
    assert scene.slurm.submitted == []


def test_nodes_of_which_no_allowed_size_is_made_go_back(script: Path) -> None:
    """Of 1, 2, 4, 8 nodes the first step is lost: 7 are there and make 4, and two of them are of no use."""
    scene = Scene(script, sizes=(1, 2, 4, 8))

    async def lose_the_first() -> None:
        first, *others = (each.job_id for each in scene.slurm.submitted)
        for each in (first, *others):
            scene.slurm.change(each, state="RUNNING")
            scene.replicas.serves(each, "a")
        scene.slurm.change(first, state="PREEMPTED")
        scene.replicas.gone(first, "a")

    async def is_given_back() -> None:
        await asyncio.sleep(0.02)
        assert scene.slurm.cancelled == []
        scene.now += 31
        second = scene.slurm.submitted[1].job_id
        await scene.until(lambda: scene.slurm.cancelled == [second])
        scene.replicas.gone(second, "a")

    async def without_the_first_it_is_not_asked_for_again() -> None:
        second, missing = (scene.slurm.submitted[place].job_id for place in (1, 3))
        scene.slurm.change(second, state="COMPLETED")
        scene.now += 200
        await asyncio.sleep(0.05)
        assert len(scene.slurm.submitted) == 4
        scene.replicas.serves(missing, "b")

    acts = (lose_the_first, scene.submitted(4), is_given_back, without_the_first_it_is_not_asked_for_again)
    scene.act(scene.submitted(3), *acts, scene.submitted(5))
    assert [each.options[1] for each in scene.slurm.submitted[3:]] == ["--nodes=1", "--nodes=2"]
    second = scene.slurm.submitted[1].job_id
    assert scene.warnings() == [f"replica job {second} is given back: no allowed size needs it"]
