"""A node that is to be given up: it stays when the run could not go on without it.

A baseline job is given up as a whole, or not: Slurm takes no single node out of a job that runs. One of which
all agents have ended is completed, and the coordinator submits another one (`baseline`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hpctools.elastic.context import RunContext
from hpctools.elastic.peers import Agent, Roster


def agents_to_give_up(roster: Roster, node: str) -> list[Agent]:
    """The agents on a node, and all others of a baseline job that has it."""
    there = roster.agents_on(node)
    jobs = {agent.job_id for agent in there if agent.is_baseline}
    of_jobs = [each for each in roster.agents.values() if each.is_baseline and each.job_id in jobs]
    return [*there, *(each for each in of_jobs if each.node != node)]


def keeping(run: RunContext) -> Callable[[str], str | None]:
    """`why_kept` of a node's name, for whoever watches the run."""
    return lambda node: why_kept(run, agents_to_give_up(run.roster, node))


def why_kept(run: RunContext, given: Sequence[Agent]) -> str | None:
    """Why agents cannot be given up; None: they can.

    They are kept when the run could not go on without them: it would wait, or end with its coordinator. A
    baseline's also when how to submit another one is not known. A replica's are not when they do nothing for
    the run, or alone have the state: they leave once others have it. Nor are they in restart mode, where it
    is not known whether ranks can do anything there.
    """
    of_baseline = any(agent.is_baseline for agent in given)
    if of_baseline and not run.spec.baseline_script:
        return "how to submit another baseline job is not known"
    names = {agent.name for agent in given}
    others = [each for each in run.roster.agents.values() if each.name not in names and not each.leaving]
    need = run.spec.min_nodes
    if sum(_works(run, agent) for agent in others) >= need:
        return None
    if of_baseline:
        return f"the run could not go on without its baseline job: {need} other nodes are needed"
    if run.restart is not None or not any(_works(run, agent) for agent in given):
        return None
    if _have_all_state(run, names):
        return None
    return f"the run could not go on without it: {need} other nodes are needed"


def _have_all_state(run: RunContext, agents: Collection[str]) -> bool:
    training = [each for each in run.roster.workers.values() if run.membership.trains(each.name)]
    return all(each.agent in agents for each in training)


def _works(run: RunContext, agent: Agent) -> bool:
    """Whether all workers of a node train and it can be counted on; in restart mode each is as good."""
    if agent.mute:
        return False
    if run.restart is not None:
        return True
    training = [each for each in run.roster.workers_of(agent) if run.membership.trains(each.name)]
    return len(training) == run.spec.workers_per_node
