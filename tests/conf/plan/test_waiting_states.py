"""Jobs that wait with a flag: squeue shows that instead of PENDING, and they are disturbed all the same."""

from dataclasses import replace

import pytest

from hpctools.conf.plan import Plan, make_plan, settled_plan
from hpctools.conf.plan.demand import Demand
from hpctools.conf.plan.effects import of_jobs
from tests.conf.plan.stage import EARLY, FOLDER, LATE, bundle, job, live
from tests.conf.plan.test_partition_jobs import FEWER, LESS
from tests.conf.plan.test_settle import ONE, WHY, Slurmctld, memory

STATES = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "EXPEDITING")
each_state = pytest.mark.parametrize("state", STATES)


def plan_of(state: str, demand: Demand, *edits: tuple[str, str], release: tuple[int, ...] = EARLY) -> Plan:
    waiting = job(1, "nlp1", "dl", account="nlp-lab-a", state=state)
    found = replace(live(bundle(release=release), waiting, release=release), demands={1: demand})
    return make_plan(bundle(*edits, release=release), found, folder=FOLDER)


@each_state
def test_a_partition_that_gets_too_small_for_it(state: str) -> None:
    plan = plan_of(state, Demand({"node": 5}, {}, 5), FEWER)
    assert [row.why for row in plan.jobs] == ["it asks for 5 nodes, of which there are 4 then"]
    assert of_jobs(plan.jobs) == "1 pending job would not start any more"


@each_state
def test_nodes_that_stay_and_get_too_small_for_it(state: str) -> None:
    plan = plan_of(state, Demand({"gres/gpu": 8}, {"gres/gpu": 8}), LESS, release=LATE)
    assert [row.id for row in plan.jobs] == [1]


@each_state
def test_a_limit_of_its_account(state: str) -> None:
    plan = plan_of(state, Demand({"gres/gpu": 8}), ("limits: {gpus: 48, cpus", "limits: {gpus: 4, cpus"))
    assert [row.why for row in plan.jobs] == ["it asks for 8 GPUs, and account nlp may have 4 GPUs then"]


@each_state
def test_how_it_wants_memory_is_asked(state: str) -> None:
    waiting = job(1, "cv1", "cv", account="cv-lab-a", state=state)
    found = replace(live(bundle(), waiting), demands={1: Demand(ONE, unclear=100)})
    plan = settled_plan(bundle(memory(199)), found, folder=FOLDER, ask=Slurmctld(_1="CPU"))
    assert [row.why for row in plan.jobs] == [WHY.format(200, 199)]
