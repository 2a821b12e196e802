"""What slurmctld is asked once more for a plan, and that it is asked only then."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hpctools.conf.plan import Plan, settled_plan
from hpctools.conf.plan.demand import Demand
from hpctools.errors import CommandError
from tests.conf.plan.stage import FOLDER, bundle, job, live

LIMITS = "limits: {gpus: 48, gpus_per_user: 32}"
ASKED = ("scontrol", "--all", "--future", "--oneliner", "show", "job")
ONE = {"cpu": 1, "mem": 100, "node": 1}
GPUS = {"cpu": 24, "mem": 100, "node": 1, "gres/gpu": 2}


def memory(most: int) -> tuple[str, str]:
    return LIMITS, LIMITS.replace("}", f", memory_mib: {most}}}")


class Slurmctld:
    """Answers for jobs, and remembers what it was asked."""

    def __init__(self, **kinds: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.text = "".join(f"JobId={name[1:]} JobName=x MinMemory{kinds[name]}=100M\n" for name in kinds)

    def __call__(self, argv: Sequence[str]) -> str:
        self.asked.append(tuple(argv))
        if not self.text:
            raise CommandError("it does not answer", argv=argv, code=1)
        return self.text


def plan_of(ask: Slurmctld, wanted: Any, demands: dict[int, Demand], there: Any = (), **rest: Any) -> Plan:
    waiting = (job(number, "cv1", "cv", account="cv-lab-a", **rest) for number in demands)
    found = replace(live(bundle(*there), *waiting), demands=demands)
    return settled_plan(bundle(*wanted), found, folder=FOLDER, ask=ask)


def named(plan: Plan) -> list[tuple[int, str]]:
    return [(row.id, row.why) for row in plan.jobs]


WHY = "it asks for {} MiB, and account cv may have {} MiB then"


def test_a_job_whose_fate_hangs_on_it_is_asked_for() -> None:
    """Two CPUs of a core (nodes of cv have two threads), all CPUs of a node, those that come with GPUs."""
    unclear = {
        1: Demand(ONE, unclear=100),
        2: Demand(ONE, unclear=100),
        3: Demand(ONE, whole=True, unclear=100),
        4: Demand(GPUS, unclear=100),
    }
    ask = Slurmctld(_1="CPU", _2="Node", _3="CPU", _4="CPU")
    assert named(plan_of(ask, [memory(199)], unclear)) == [
        (1, WHY.format(200, 199)),
        (3, WHY.format(4800, 199)),
        (4, WHY.format(2400, 199)),
    ]
    assert ask.asked == [ASKED]


@pytest.mark.parametrize(
    ("wanted", "there", "demand"),
    [
        ([memory(99)], [], Demand(ONE, unclear=100)),  # it never fits, whatever it means
        ([memory(200)], [], Demand(ONE, unclear=100)),  # it always fits
        ([memory(199)], [], Demand({"cpu": 2, "mem": 200, "node": 1}, per_cpu=100)),
        ([memory(150)], [memory(150)], Demand(ONE, unclear=100)),  # nothing changes
        ([(LIMITS, "limits: {gpus: 8, gpus_per_user: 8}")], [], Demand(ONE, unclear=100)),
    ],
)
def test_nobody_is_asked_where_it_does_not_matter(wanted: Any, there: Any, demand: Demand) -> None:
    ask = Slurmctld()
    plan_of(ask, wanted, {1: demand}, there)
    assert ask.asked == []


def test_a_job_that_runs_is_not_asked_for() -> None:
    ask = Slurmctld()
    assert named(plan_of(ask, [memory(150)], {1: Demand(ONE, unclear=100)}, nodes=("reserved-1",))) == []
    assert ask.asked == []


def test_a_job_that_would_never_have_started_is_not_named_for_its_lower_limit() -> None:
    """By node it fitted into 150 MiB; by CPU it never did."""
    both = {1: Demand(ONE, unclear=100), 2: Demand(ONE, unclear=100)}
    ask = Slurmctld(_1="CPU", _2="Node")
    assert named(plan_of(ask, [memory(99)], both, [memory(150)])) == [(2, WHY.format(100, 99))]
    assert ask.asked == [ASKED]


def test_without_an_answer_a_job_counts_by_node_and_it_is_said() -> None:
    plan = plan_of(Slurmctld(), [memory(199)], {1: Demand(ONE, unclear=100)})
    told = "jobs that may ask for memory by CPU are taken to ask for it by node: it does not answer"
    assert (named(plan), plan.unknown) == ([], (told,))
    gone = plan_of(Slurmctld(_7="CPU"), [memory(199)], {1: Demand(ONE, unclear=100)})
    assert (named(gone), gone.unknown) == ([], ())
