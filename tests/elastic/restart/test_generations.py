"""Generations of ranks on model nodes: what must hold whatever comes, and what follows from each event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_model import STEPS, Cluster, Crashed, Formed, Resized

from hpctools.elastic.deciding import NOBODY, Verdict
from hpctools.elastic.effects import Decided, Waiting
from hpctools.elastic.growth import Patience
from hpctools.elastic.restart.effects import Tell
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.limits import Limits

QUICK = Patience(settle=0.5, patience=0.5, pause=0.1)
LIMITS = Limits(
    sizes=(1, 2, 3, 4), per_node=2, graceful=5.0, term=1.0, patience=QUICK, blind_snooze=1.0, restarts=3
)


def cluster(seed: int = 1, nodes: int = 2, *, asks: bool = True, limits: Limits = LIMITS) -> Cluster:
    model = Cluster(seed, limits, asks=asks)
    for place in range(nodes):
        model.add(baseline=place == 0)
    return model


def begun(model: Cluster) -> bool:
    """Whether all ranks of the last generation run."""
    machine, formed = model.machine, model.of(Formed)
    latest = bool(formed) and formed[-1].generation == machine.generation
    return latest and machine.phase == "running" and model.world() == len(machine.members)


@pytest.mark.parametrize("seed", range(12))
def test_an_undisturbed_run_finishes_in_one_generation(seed: int) -> None:
    model = cluster(seed, 4)
    model.run(100)
    assert model.finished
    assert model.saved == STEPS
    (formed,) = model.of(Formed)
    assert formed.members == ("a0", "a1", "a2", "a3")
    assert model.of(Resized) == model.of(Crashed) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_new_node_is_used_after_all_ranks_have_saved_at_the_same_step(seed: int) -> None:
    model = cluster(seed)
    model.until(lambda: begun(model) and model.machine.step > 3)
    model.add()
    model.until(lambda: model.world() == 3)
    model.run(100)
    assert model.finished
    (resized,) = model.of(Resized)
    assert (resized.before, resized.after, resized.recovered) == (4, 6, False)
    assert resized.pause == pytest.approx(sum(resized.phases.values()))
    assert model.of(Crashed) == []


def test_the_time_that_a_policy_gives_newcomers_is_for_growing_and_not_for_a_start() -> None:
    """Nodes that are paid for would stand idle; nor does a start wait so when everything was lost."""
    patience = replace(QUICK, settle=4.0, patience=4.0)
    model = cluster(1, 1, limits=replace(LIMITS, patience=patience))
    model.run(1.9)
    model.add()
    model.until(lambda: begun(model), 0.9)
    assert model.world() == 2, "who comes a moment later is there from the beginning"
    came = model.now
    model.add()
    model.until(lambda: begun(model) and model.world() == 3)
    assert model.now - came >= 4.0
    for node in model.living():
        model.kill(node)
    model.until(lambda: not model.connected)
    model.add(baseline=True)
    model.until(lambda: begun(model), 0.9)


@pytest.mark.parametrize("seed", range(12))
def test_a_preempted_node_is_released_in_time_and_the_others_go_on(seed: int) -> None:
    model = cluster(seed, 3)
    model.until(lambda: begun(model) and model.machine.step > 3)
    step = model.machine.step
    model.preempt(model.nodes["a2"], 4.0)
    model.until(lambda: model.nodes["a2"].released, 4.0)
    assert model.saved >= step - 1, "it has saved before it went"
    model.until(lambda: model.world() == 2)
    model.run(100)
    assert model.finished
    assert [each.members for each in model.of(Formed)] == [("a0", "a1", "a2"), ("a0", "a1")]
    assert model.of(Crashed) == []
    assert model.machine.restarts == 0


@pytest.mark.parametrize("seed", range(12))
def test_ranks_that_end_before_their_first_step_only_prolong_the_pause(seed: int) -> None:
    """From the last step to the next one, whatever was begun and ended in between."""
    model = cluster(seed, 3)
    model.until(lambda: begun(model) and model.machine.step > 3)
    model.preempt(model.nodes["a2"], 4.0)
    model.until(lambda: model.machine.phase == "telling")
    asked = model.now
    model.until(lambda: model.world() == 0)
    stood, model.loading = model.now, True
    model.until(lambda: len(model.of(Formed)) == 2)
    model.kill(model.nodes["a1"])
    model.until(lambda: len(model.of(Formed)) == 3)
    model.loading = False
    model.until(lambda: bool(model.of(Resized)))
    (resized,) = model.of(Resized)
    assert (resized.before, resized.after, resized.recovered) == (6, 2, True)
    assert model.now - stood < resized.pause < model.now - asked + 1e-6
    assert resized.pause == pytest.approx(sum(resized.phases.values()))


@pytest.mark.parametrize("asks", [True, False])
def test_stubborn_ranks_are_killed_before_slurm_would(asks: bool) -> None:
    """They neither end when they are told nor at SIGTERM; the model fails if they outlive the deadline."""
    model = cluster(3, 3, asks=asks)
    model.until(lambda: begun(model) and model.nodes["a0"].ranks[0].calls > 3)
    model.stubborn = True
    model.preempt(model.nodes["a2"], 4.0)
    model.until(lambda: model.nodes["a2"].released, 4.1)


def test_a_script_that_asks_for_no_events_is_ended_at_once_and_started_again() -> None:
    model = cluster(1, 3, asks=False)
    model.until(lambda: begun(model))
    model.run(0.3)
    model.preempt(model.nodes["a2"], 8.0)
    model.until(lambda: model.nodes["a2"].released, 1.0)
    model.until(lambda: model.world() == 2)
    model.until(lambda: model.finished)
    (resized,) = model.of(Resized)
    assert resized.normal_step == 0
    assert resized.phases["first"] == 0


def test_a_script_that_asks_for_no_events_grows_only_after_its_snooze() -> None:
    model = cluster(1, 2, asks=False)
    model.until(lambda: begun(model))
    began = model.now
    model.add()
    model.until(lambda: model.world() == 3)
    assert model.now - began > LIMITS.blind_snooze
    (first, *_) = model.of(Decided)
    assert (first.world, first.possible, first.verdict.grow) == (4, 6, False)
    assert "asks for no events" in first.verdict.why


def test_that_it_does_not_grow_is_said_no_longer_when_nobody_is_left_to_grow_by() -> None:
    """`hp-status` would go on to show it."""
    model = cluster(1, 2, asks=False, limits=replace(LIMITS, blind_snooze=60.0))
    model.until(lambda: begun(model))
    model.kill(model.add())
    model.until(lambda: len(model.of(Decided)) == 2)
    model.run(1.0)
    (refused, gone) = model.of(Decided)
    assert (refused.world, refused.possible, refused.verdict.grow) == (4, 6, False)
    assert gone == Decided(4, 4, Verdict(False, 4, why=NOBODY))
    model.add()
    model.until(lambda: len(model.of(Decided)) == 3)
    assert model.of(Decided)[2].verdict.why == refused.verdict.why


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_restarts_all_ranks_and_counts(seed: int) -> None:
    model = cluster(seed, 3)
    for count in (1, 2, 3):
        model.until(lambda: begun(model) and max(model.machine.calls.values()) > 3)
        model.crash(model.nodes["a1"])
        model.until(lambda c=count: model.machine.generation == c + 1 and begun(model), 20)
        assert model.machine.restarts == count
    model.run(100)
    assert model.finished
    assert [(each.agent, each.code) for each in model.of(Crashed)] == [("a1", 1)] * 3
    assert all(each.recovered for each in model.of(Resized))
    assert [node.begun["restarts"] for node in model.nodes.values()] == [3, 3, 3]


def test_a_new_coordinator_says_who_runs() -> None:
    """What the status tells may be of before the last resize: who made that had no time to note it."""
    model = cluster(1, 3)
    model.until(lambda: begun(model) and model.machine.step > 3)
    model.take_over()
    model.effects.clear()
    model.until(lambda: model.machine.phase == "running")
    (formed,) = model.of(Formed)
    assert (formed.generation, formed.members, formed.before) == (1, ("a0", "a1", "a2"), formed.members)


@pytest.mark.parametrize("phase", ["offering", "running", "telling", "ending"])
@pytest.mark.parametrize("seed", range(12))
def test_a_line_that_breaks_unnoticed_at_any_moment_stops_nothing(seed: int, phase: str) -> None:
    """What was under way on it in both directions is lost, and neither side knows what of it."""
    model = cluster(seed, 3)
    if phase != "offering":
        model.until(lambda: begun(model) and max(model.machine.calls.values()) > 3)
    if phase == "telling":
        model.add()
    elif phase == "ending":
        model.crash(model.nodes["a1"])
    model.until(lambda: model.machine.phase == phase)
    for _ in range(seed % 4):
        model.step()
    model.reconnect(model.nodes[f"a{seed % 3}"])
    model.until(lambda: model.finished)
    assert model.saved == STEPS


def test_one_crash_too_many_fails_the_run_with_its_last_words() -> None:
    model = cluster(1, 2)
    for _ in range(LIMITS.restarts + 1):
        model.until(lambda: model.broken or begun(model))
        model.crash(model.nodes["a1"])
        model.until(lambda: model.broken or model.machine.phase != "running")
    model.until(lambda: model.broken)
    assert "ended with exit code 1: it broke (after 3 restarts in 3600 s)" in model.broken
    assert (model.world(), model.code) == (0, None)


@pytest.mark.parametrize(
    ("stated", "crashes", "code", "why"),
    [
        ({"restarts": 1}, 2, 49, "after 1 restarts in 3600 s"),
        ({"retries": 2}, 3, 48, "jobMaxRetryCount 2 is used up"),
        ({"retries": 0}, 1, 48, "jobMaxRetryCount 0 is used up"),
        ({"restarts": 2, "retries": 2}, 3, 49, "after 2 restarts in 3600 s"),
    ],
)
def test_what_a_policy_allows_is_used_up_with_a_code_of_its_own(
    stated: dict[str, int], crashes: int, code: int, why: str
) -> None:
    model = cluster(1, 2, limits=replace(LIMITS, has_policy=True, **stated))  # type: ignore[arg-type]
    for count in range(1, crashes + 1):
        model.until(lambda: begun(model))
        assert not model.broken
        model.crash(model.nodes["a1"])
        model.until(lambda: model.machine.phase != "running")
        model.until(lambda count=count: model.machine.restarts == count)
    assert (model.code, why in model.broken) == (code, True)


def test_crashes_of_long_ago_are_forgiven() -> None:
    model = cluster(1, 2, limits=replace(LIMITS, period=5.0))
    for _ in range(LIMITS.restarts + 3):
        model.until(lambda: begun(model))
        model.crash(model.nodes["a1"])
        model.until(lambda: model.machine.phase != "running")
        model.until(lambda: begun(model), 60)
        model.now += 6
    assert not model.broken


@pytest.mark.parametrize("seed", range(20))
def test_a_new_coordinator_goes_on_counting_crashes(seed: int) -> None:
    """It comes at any moment after each of them; none is forgotten, and none is counted twice."""
    model = cluster(seed, 2)
    for count in range(1, LIMITS.restarts + 1):
        model.until(lambda: begun(model))
        model.crash(model.nodes["a1"])
        for _ in range(model.random.randrange(80)):
            model.step()
        model.take_over()
        model.until(lambda: begun(model), 60)
        assert model.machine.restarts == len(model.charges) == len(model.of(Crashed)) == count
    model.crash(model.nodes["a1"])
    model.until(lambda: model.broken)
    assert f"(after {LIMITS.restarts} restarts in 3600 s)" in model.broken


@pytest.mark.parametrize("seed", range(12))
def test_a_lost_node_is_nobodys_crash(seed: int) -> None:
    """Ranks of other nodes that break because of it are not counted either, whoever reports first."""
    model = cluster(seed, 3)
    for _ in range(LIMITS.restarts + 2):
        model.until(lambda: begun(model) and model.world() == 3)
        victim = next(node for node in model.living() if node.name != "a0")
        model.crash(model.nodes["a0"])
        model.kill(victim)
        model.add()
        model.until(lambda: model.machine.phase != "running")
    model.until(lambda: model.finished)
    assert model.machine.restarts == 0


def test_below_the_smallest_size_it_waits_and_goes_on_when_it_can() -> None:
    model = cluster(1, 2, limits=replace(LIMITS, sizes=(2, 4)))
    model.until(lambda: begun(model) and model.machine.step > 2)
    model.preempt(model.nodes["a1"], 6.0)
    model.until(lambda: model.nodes["a1"].released)
    model.run(30)
    assert (model.machine.phase, model.world()) == ("waiting", 0)
    assert model.of(Waiting) == [Waiting(2, 4)]
    assert not model.finished
    model.add()
    model.until(lambda: model.finished)
    assert model.saved == STEPS


def test_what_a_restart_costs_is_told_without_the_wait_for_nodes() -> None:
    model = cluster(nodes=2, limits=replace(LIMITS, sizes=(2, 3)))
    model.until(lambda: begun(model) and model.machine.step > 3)
    model.kill(next(node for node in model.nodes.values() if node.name == "a1"))
    model.run(100)
    model.add()
    model.until(lambda: bool(model.of(Resized)))
    (resized,) = model.of(Resized)
    assert resized.pause > 90
    assert resized.phases["wait"] > 90
    assert resized.cost == pytest.approx(resized.pause - resized.phases["wait"])
    assert list(model.machine._growing._history._pauses) == [resized.cost]


def test_only_allowed_sizes_are_formed() -> None:
    """4 nodes, one leaves: sizes 1, 2 and 4 make 2; the third stands by."""
    model = cluster(1, 4, limits=replace(LIMITS, sizes=(1, 2, 4)))
    model.until(lambda: begun(model) and model.world() == 4)
    model.preempt(model.nodes["a3"], 6.0)
    model.until(lambda: model.world() == 2 and begun(model))
    assert not model.nodes["a2"].running()
    model.run(100)
    assert model.finished


def test_a_faulty_node_is_waited_for_before_the_run_goes_on_without_it() -> None:
    model = cluster(1, 2, limits=replace(LIMITS, faulty=3.0))
    model.until(lambda: begun(model))
    model.kill(model.nodes["a1"])
    model.until(lambda: model.machine.phase == "waiting")
    model.run(1.0)
    assert model.world() == 0
    model.add()
    model.until(lambda: model.world() == 2)


@pytest.mark.parametrize("seed", range(40))
def test_a_new_coordinator_disturbs_nobody(seed: int) -> None:
    """It comes at any moment of a run; ranks that train go on in their generation."""
    model = cluster(seed, 3)
    model.until(lambda: begun(model) and model.machine.step > 2)
    model.take_over()
    model.until(lambda: model.machine.phase == "running", 6)
    assert model.machine.generation == 1
    assert model.world() == 3
    model.add()
    model.until(lambda: model.world() == 4 or model.finished)
    model.until(lambda: model.finished)
    assert model.of(Crashed) == []


@pytest.mark.parametrize("seed", range(40))
def test_a_new_coordinator_in_the_middle_of_a_change(seed: int) -> None:
    """Whatever was agreed stays agreed, whatever was not begins anew; a node that died is missed."""
    model = cluster(seed, 3)
    model.until(lambda: begun(model) and model.machine.step > 2)
    leaver = model.nodes["a2"]
    model.preempt(leaver, 60.0)
    for _ in range(model.random.randrange(12)):
        model.step()
    if seed % 4 == 0:
        model.kill(model.nodes["a1"])
    model.take_over()
    model.until(lambda: model.finished or leaver.released, 60)
    model.add()
    model.until(lambda: model.finished)
    assert model.saved == STEPS


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_a_run_that_is_ended_at_any_moment_is_over_in_time_and_begins_nothing(seed: int, asks: bool) -> None:
    model = cluster(seed, 3, asks=asks)
    if seed % 3:
        model.until(lambda: begun(model) and (model.machine.step > 2 or not asks))
    if seed % 3 == 2:
        model.preempt(model.nodes["a2"], 60.0)
    for _ in range(model.random.randrange(30)):
        model.step()
    model.stubborn = seed % 5 == 0
    trained, generation = model.machine.phase in ("running", "telling"), model.machine.generation
    model.machine.finish(model.now, 5.0)
    model.carry_out()
    model.until(lambda: model.machine.phase == "over", 5.5)
    assert not any(node.running() for node in model.nodes.values())
    model.add()
    model.run(10.0)
    assert (model.world(), model.machine.generation) == (0, generation)
    told = {rank.told for node in model.nodes.values() for rank in node.ranks.values()}
    if asks and trained and seed % 3 and not model.stubborn:
        assert (len(told - {0}), model.saved) == (1, max(told)), "what was saved is what was done"


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_is_ended_as_its_coordinator_goes_is_over_in_time(seed: int, killed: bool) -> None:
    model = cluster(seed, 3)
    model.until(lambda: begun(model) and model.machine.step > 2)
    if killed:
        model.kill(model.nodes["a2"])
    model.take_over()
    for _ in range(model.random.randrange(60)):
        model.step()
    model.machine.finish(model.now, 4.5)
    model.carry_out()
    model.until(lambda: model.machine.phase == "over", 5.0)
    assert not any(node.running() for node in model.nodes.values())
    told = {rank.told for node in model.nodes.values() for rank in node.ranks.values()}
    assert killed or model.saved == max(told) > 0, "what was saved is what was done"


@pytest.mark.parametrize("seed", range(10))
def test_ranks_that_wait_for_a_decision_nobody_will_take_go_on(seed: int) -> None:
    """The node for which the run was to grow has gone, and with it the coordinator that had asked."""
    model = cluster(seed, 2)
    model.until(lambda: begun(model) and model.machine.step > 2)
    newcomer = model.add()
    ranks = [rank for node in model.nodes.values() for rank in node.ranks.values()]
    model.until(lambda: any(rank.bound and not rank.committed for rank in ranks))
    model.kill(newcomer)
    model.take_over()
    committed = any(rank.committed for rank in ranks)
    model.until(lambda: model.finished, 60)
    assert model.machine.generation == (2 if committed else 1)


@pytest.mark.parametrize("seed", range(120))
def test_whatever_comes_the_training_is_done_in_the_end(seed: int) -> None:
    sizes = [(1, 2, 3, 4), (2, 4), (1, 2, 4), (3,)][seed % 4]
    model = cluster(seed, sizes[0], limits=replace(LIMITS, sizes=sizes, restarts=1000))
    rng = model.random
    for _ in range(rng.randrange(1, 25)):
        model.run(rng.random() * 3)
        if model.finished:
            break
        happening = rng.choice(["add", "kill", "preempt", "crash", "take over", "replace agent"])
        living = [node for node in model.living() if node.deadline is None]
        running = [node for node in model.living() if node.running()]
        if happening == "add" and len(living) < 6:
            model.add()
        elif happening == "kill" and living:
            model.kill(rng.choice(living))
        elif happening == "preempt" and living:
            model.preempt(rng.choice(living), 20.0)
        elif happening == "crash" and running:
            model.crash(rng.choice(running), rng.choice([1, -9, -15]))
        elif happening == "take over":
            model.take_over()
        elif happening == "replace agent" and (there := [n for n in living if n.name in model.connected]):
            model.replace_agent(rng.choice(there))
    while len(model.living()) < sizes[0] + 1:
        model.add()
    model.until(lambda: model.finished, 400)
    assert model.saved == STEPS


def test_a_script_in_which_one_rank_asks_for_all_has_the_time_of_the_policy_and_not_hours() -> None:
    machine = Generations(LIMITS)
    machine.joined("a0", (0, 0), 0.0)
    machine.tick(5.0)
    machine.offered("a0", 1, "n0", 1, 5.0)
    machine.began("a0", 1, 5.0)
    for now, calls in ((6.0, 10), (7.0, 20), (3607.0, 36020)):  # ten steps a second, for an hour
        machine.counted("a0", 1, {"0": (calls, 0)}, now)
    machine.leaving("a0", 1e6, 3607.0)
    told = [each.message for each in machine.effects if isinstance(each, Tell)]
    (call,) = [each["call"] for each in told if each["do"] == "propose"]
    machine.answered("a0", 1, call, 3607.0, bound=True, calls=36020)
    assert machine._limit == pytest.approx(3607.0 + LIMITS.graceful, abs=5.0)
