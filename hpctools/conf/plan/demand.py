"""What jobs in the queue ask for or hold, and what is used of limits on used time: pure readers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hpctools.slurm import parse
from hpctools.slurm.versions import Release, column_of_whole_nodes

# squeue(1), --Format; no field holds words of people. For a job that waits tres-alloc is what it asks for.
_FIELDS = (
    *("JobID", "tres-alloc", "cpus-per-tres", "mem-per-tres", "MinMemory", "tres-per-node", "NumNodes"),
    *("TimeLeft", "Threads", "cpus-per-task", "NTPerNode", "MinCPUs"),
)
# What comes with each GPU has no `gres` in front when the partition gives it (22.05.8, 24.11.5, 26.05.5).
_GIVEN = re.compile(r"gpu(:|$)")

_COUNT = re.compile(r"([\d.]+)([KMGTP]?)", re.IGNORECASE)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

ON_NODES = "if it says on how many nodes"
"""What nobody can know of a job of several tasks: `-n12` and `-N1 -n12` look alike."""
Tres = Mapping[str, int]
"""Counts by TRES in slurmdbd's words: `{"cpu": 8, "mem": 4096, "gres/gpu": 2}`; memory in MiB."""


@dataclass(frozen=True)
class Demand:
    """What a job asks for or, when it runs, holds.

    Attributes:
        tres: counts by TRES.
        per_node: counts of generic resources that it wants on every one of its nodes, as `tres` names them.
        nodes: how many nodes it wants, the most when it says a range.
        left: minutes that it may still run; None when unlimited or not known.
        whole: whether it asks for whole nodes.
        memory: MiB that it states, for each node or with each CPU; 0 when it does with each GPU.
        per_cpu: MiB that come with each CPU; 0 when that is not how it asks for memory, or not known.
        unclear: MiB of which squeue does not tell whether they are for each CPU or for each node; they are
            taken for the latter. 0 when that is clear.
        per_gpu: MiB that come with each GPU; 0 when that is not how it asks for memory.
        threads: how many CPUs of a core it uses; None when all.
        cpus: CPUs that it asks for itself, without those that come with its GPUs; 0 for all of `tres`.
        gpu_cpus: CPUs that come with each GPU; 0 when none do, or slurmctld has not looked at it yet.
        given: what of each GPU its partition gives and it does not state: `cpu`, `mem`.
        task_cpus: CPUs of each of its tasks.
        node_tasks: tasks that it wants on every node; 0 when it does not say.
        node_cpus: CPUs that it wants on every node.
        provided: what is taken for granted of a TRES and not known, a clause by TRES.
    """

    tres: Tres = field(default_factory=dict)
    per_node: Tres = field(default_factory=dict)
    nodes: int = 1
    left: int | None = None
    whole: bool = False
    memory: int = 0
    per_cpu: int = 0
    unclear: int = 0
    per_gpu: int = 0
    threads: int | None = None
    cpus: int = 0
    gpu_cpus: int = 0
    given: frozenset[str] = frozenset()
    task_cpus: int = 1
    node_tasks: int = 0
    node_cpus: int = 1
    provided: Mapping[str, str] = field(default_factory=dict)

    @property
    def own_cpus(self) -> int:
        """CPUs without those that come with its GPUs."""
        return self.cpus or self.tres.get("cpu", 1)

    @property
    def at_once(self) -> int:
        """CPUs that it states for one node: of a task, or of as many as it wants there."""
        return max(max(self.node_tasks, 1) * self.task_cpus, self.node_cpus)

    def doubt(self, tres: str, more: str = "") -> str:
        """What a sentence about a TRES ends with where it hangs on what is not known, and on `more`."""
        clauses = [clause for clause in (self.provided.get(tres, ""), more) if clause]
        return f" ({' and '.join(clauses)})" if clauses else ""


def demand_format(release: Release) -> str:
    """Return what `squeue --Format` is given, for `read_demands`."""
    column = column_of_whole_nodes(release)
    return ",".join(f"{name}:|" for name in (*_FIELDS, column[0]))


def read_demands(text: str, release: Release) -> dict[int, Demand]:
    """Read `squeue --noheader --Format=demand_format(release)`, by job id; a pending array is one job."""
    column = column_of_whole_nodes(release)
    rows = (line.strip().split("|") for line in text.splitlines())
    return {
        int(row[0]): _demand(row[: len(_FIELDS) + 1], whole=row[len(_FIELDS)] == column[1])
        for row in rows
        if len(row) > len(_FIELDS) and row[0].isdecimal()
    }


def _demand(row: list[str], *, whole: bool) -> Demand:
    _, shown, cpus_per_tres, mem_per_tres, memory, per_node, nodes, left, threads, *at_once = row[:-1]
    tres, per_gpu = _tres(shown), generic(mem_per_tres).get("gres/gpu", 0)
    stated = 0 if per_gpu else _count("mem", memory)  # a partition's default is shown besides
    per_cpu, unclear = _per_cpu(tres, stated)
    task_cpus, node_tasks, node_cpus = (int(text) if text.isdecimal() else 0 for text in at_once)
    return Demand(
        _with_cpus(tres, generic(cpus_per_tres), per_cpu),
        generic(per_node),
        int(nodes) if nodes.isdecimal() else 1,
        parse.minutes(left),
        whole,
        stated,
        per_cpu,
        unclear,
        per_gpu,
        int(threads) if threads.isdecimal() else None,
        tres.get("cpu", 1),
        generic(cpus_per_tres).get("gres/gpu", 0),
        _given(cpu=cpus_per_tres, mem=mem_per_tres),
        max(task_cpus, 1),
        node_tasks,
        max(node_cpus, 1),
    )


def _given(**shown: str) -> frozenset[str]:
    return frozenset(name for name, text in shown.items() if _GIVEN.match(text))


def _tres(text: str) -> dict[str, int]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name: _count(name, count) for name, _, count in pairs}


def _count(name: str, text: str) -> int:
    """A count as squeue prints it: `8`, `1.50T`; memory in MiB."""
    found = _COUNT.fullmatch(text)
    if found is None:
        return 0
    factor = 1024.0 ** (_UNITS[found[2].upper() or ("M" if name == "mem" else "")] - (name == "mem") * 2)
    return int(float(found[1]) * factor)


def generic(text: str) -> dict[str, int]:
    """Count generic resources: `gres:gpu:a100:8` or `gres/gpu:8` as `{"gres/gpu": 8, "gres/gpu:a100": 8}`."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, kind = re.sub(r"^gres[:/]", "", part.strip().lower()).partition(":")
        kind, _, count = kind.rpartition(":")
        if name and count.isdecimal():
            found[f"gres/{name}"] = found.get(f"gres/{name}", 0) + int(count)
            if kind:
                found[f"gres/{name}:{kind}"] = int(count)
    return found


def _per_cpu(tres: Tres, memory: int) -> tuple[int, int]:
    """MiB that come with each CPU, and MiB that come with each CPU or each node: one of them is 0."""
    cpus = tres.get("cpu", 0)
    if tres.get("mem") != memory * cpus:
        return 0, 0
    return (0, memory) if cpus == tres.get("node", 1) else (memory, 0)


def _with_cpus(tres: dict[str, int], per_tres: Tres, per_cpu: int) -> dict[str, int]:
    """What a waiting job asks for, with the CPUs that come with its GPUs, and with their memory.

    squeue counts them only once a job runs: with 12 CPUs a GPU and 8 GPUs it shows one CPU (22.05.8).
    """
    cpus = max((count * tres.get(name, 0) for name, count in per_tres.items()), default=0)
    if cpus <= tres.get("cpu", 0):
        return tres
    return {**tres, "cpu": cpus, **({"mem": per_cpu * cpus} if per_cpu else {})}


def by_cpu(demand: Demand) -> Demand:
    """What a job takes whose memory, which is not clear, comes with each CPU."""
    taken = {"mem": demand.unclear * demand.tres["cpu"]} if demand.unclear else {}
    return replace(demand, tres={**demand.tres, **taken}, per_cpu=demand.per_cpu or demand.unclear, unclear=0)


def read_memory_by_cpu(text: str) -> dict[int, bool]:
    """Read `scontrol --oneliner show job`: whether each job asks for memory by CPU, or by node.

    A name or comment may look like the answer, and like another job: who is told of in two ways is left out.
    """
    found: dict[int, set[str]] = {}
    for line in text.splitlines():
        job = re.match(r"JobId=(\d+) ", line)
        if job is not None:
            found.setdefault(int(job[1]), set()).update(re.findall(r" MinMemory(CPU|Node)=", line))
    return {job: kinds == {"CPU"} for job, kinds in found.items() if len(kinds) == 1}


Holder = tuple[str, str, str]
"""Whose limits: kind, name and account, as `AccountChange` has them."""


@dataclass(frozen=True)
class Used:
    """What is used of limits on used time; it decays, so that no sum over jobs tells it.

    Attributes:
        minutes: TRES minutes.
        wall: minutes of jobs' time.
    """

    minutes: Mapping[str, float] = field(default_factory=dict)
    wall: float = 0.0


def read_used(text: str) -> dict[Holder, Used]:
    """Read `scontrol show assoc_mgr`: what each QoS, account and person in an account has used."""
    found: dict[Holder, Used] = {}
    for paragraph in re.split(r"\n(?=ClusterName=|QOS=)", text):
        words = dict(re.findall(r"(?:^|\s)([A-Za-z]+)=(\S*)", paragraph))
        if "QOS" in words or "ClusterName" in words:
            spent = dict(_used(words.get("GrpTRESMins", "")))
            wall = dict(_used(f"wall={words['GrpWall']}")) if "GrpWall" in words else {}
            found[_holder(words)] = Used(spent, wall.get("wall", 0.0))
    return found


def _holder(words: Mapping[str, str]) -> Holder:
    name = words.get("QOS")
    if name is not None:
        return "qos", name.partition("(")[0], ""
    user, account = words.get("UserName", "").partition("(")[0], words.get("Account", "")
    return ("association", user, account) if user else ("account", account, "")


def _used(text: str) -> Iterator[tuple[str, float]]:
    """`cpu=N(328),gres/gpu=100(3)`: limit and use."""
    for name, used in re.findall(r"([^=,]+)=[^(,]*\(([\d.]+)\)", text):
        yield name, float(used)
