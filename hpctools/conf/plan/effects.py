"""What a change means and for whom: one sentence for a person."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hpctools.conf.plan.model import DisturbedJob
from hpctools.conf.plan.sides import Difference, folded
from hpctools.site.scalars import spell_duration
from hpctools.slurm.states import WAITING
from hpctools.slurm.types import Job


def count(number: int, word: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def loading(found: Difference) -> str:
    """Why there is something to do although one side is right."""
    if found.loaded:
        return "it runs so already; only the file says otherwise"
    return "written, but not loaded" if found.written else ""


def joined(*sentences: str) -> str:
    """Sentences that say something, in one line."""
    return "; ".join(sentence for sentence in sentences if sentence)


def of_setting(found: Difference, jobs: Sequence[Job]) -> str:
    """A setting of the whole cluster."""
    lost = (
        f"Slurm forgets all jobs when this changes: {count(len(jobs), 'job')} must end first" if jobs else ""
    )
    return joined(loading(found), lost)


def disturbed(job: Job, why: str, *, waits: bool = False) -> DisturbedJob:
    """A job that is disturbed, for a sentence that says why; `waits` when it only has to wait longer."""
    nodes = folded(job.nodes) if job.nodes else ""
    return DisturbedJob(job.id, job.user, job.partition, job.state, nodes, why, waits)


def of_jobs(jobs: Collection[DisturbedJob]) -> str:
    """How many jobs there are that end, that can never start and that wait longer."""
    later = sum(job.waits for job in jobs)
    never = sum(job.state in WAITING and not job.waits for job in jobs)
    ended = len(jobs) - later - never
    return joined(
        f"{count(ended, 'running job')} would end" if ended else "",
        f"{count(never, 'pending job')} would not start any more" if never else "",
        f"{count(later, 'pending job')} would wait longer" if later else "",
    )


_TRES = {"cpu": "CPU", "node": "node", "gres/gpu": "GPU", "gres/shard": "shard"}


def amount(tres: str, number: int, unit: str = "") -> str:
    """`8 GPUs`, `512 MiB`, `10 CPU-minutes`; `unit` is what follows the TRES."""
    if tres == "mem":
        return count(number, f"MiB{unit}") if unit else f"{number} MiB"
    known = _TRES.get(tres)
    return count(number, f"{known}{unit}") if known else f"{number} {tres}{unit and f'{unit}s'}"


def span(minutes: int | None) -> str:
    """A time limit as Slurm prints it."""
    return "no limit" if minutes is None else spell_duration(minutes * 60)


def of_new_partition(raw: Mapping[str, str]) -> str:
    """A partition that comes."""
    who = raw.get("allowaccounts", "ALL")
    return "everybody may use it" if who.upper() == "ALL" else f"for {_listed(who)}"


def of_partition(name: str, key: str, before: str, after: str, jobs: Collection[DisturbedJob]) -> str:
    """One key of a partition; values are canonical, `jobs` those that it would disturb."""
    sentences = {
        "maxtime": lambda: f"people of {name}: a job may run for {_limit(after)} instead of {_limit(before)}",
        "defaulttime": lambda: f"people of {name}: a job that names no time gets {_limit(after)}",
        "nodes": lambda: _node_effect(name, before, after),
        "allowaccounts": lambda: _list_effect("may use it", before, after),
        "allowqos": lambda: _list_effect("may be asked for", before, after),
        "denyaccounts": lambda: _list_effect("is refused", before, after),
        "default": lambda: f"jobs that name no partition {'go' if after == '1' else 'do not go'} here",
        "state": lambda: f"people of {name}: the partition is {after.upper()}",
        "prioritytier": lambda: f"jobs of {name} are looked at {_direction(before, after)}",
        "tresbillingweights": lambda: f"what a job of {name} costs its account changes",
    }
    told = sentences[key]() if key in sentences else ""
    return joined(told, of_jobs(jobs))


def _limit(minutes: str) -> str:
    return spell_duration(int(minutes) * 60) if minutes.isdecimal() else "any time"


def _direction(before: str, after: str) -> str:
    return "earlier" if int(after or 1) > int(before or 1) else "later"


def _listed(text: str, most: int = 6) -> str:
    names = text.split(",")
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _list_effect(verb: str, before: str, after: str) -> str:
    if "all" in (before, after):
        return f"everyone {verb}" if after == "all" else f"only {_listed(after)} {verb}"
    old, new = set(before.split(",")) - {""}, set(after.split(",")) - {""}
    came, went = ",".join(sorted(new - old)), ",".join(sorted(old - new))
    return joined(f"{_listed(came)} {verb} now" if came else "", f"{_listed(went)} no longer" if went else "")


def _node_effect(name: str, before: str, after: str) -> str:
    from ClusterShell.NodeSet import NodeSet

    old, new = NodeSet(before or None), NodeSet(after or None)
    came, went = new - old, old - new
    return joined(f"jobs of {name} may use {came}" if came else "", f"no new ones on {went}" if went else "")
