"""A made-up site of any size, for benchmarks of the configuration: `big_site(nodes, departments, users)`.

Run it to see one: `python -m bench.big_site 5000 100 2000 > site.yaml`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

# name, part of all nodes, GPUs of each, whether half of them come and go
_GROUPS = (
    ("thin", 0.40, "", False),
    ("fat", 0.05, "", False),
    ("a100", 0.25, "type: a100, count: 8", False),
    ("h100", 0.10, "type: h100, count: 8", False),
    ("shared", 0.05, "type: a10g, count: 4, share: {shards_per_gpu: 4}", False),
    ("spot", 0.15, "type: a100, count: 8", True),
)
_LABS = 4

_HEAD = """\
cluster:
  name: big
  controllers: [ctl-1]
  configuration: {state_folder: /shared/slurmctld}
  power_saving:
    resume_program: /opt/site/resume
    suspend_program: /opt/site/suspend
    suspend_time: 00:10:00
"""
_TIERS = """\
tiers:
  high: {priority: 1000, preempts: [low, elastic]}
  normal: {priority: 100, default: true}
  low: {priority: 10, when_preempted: requeue}
  elastic: {priority: 5, for_replicas: true, when_preempted: cancel, grace_time: 00:00:08}
"""


def big_site(nodes: int, departments: int, users: int) -> str:
    """Return a site file.

    Args:
        nodes: compute nodes, at least 20, in six groups; some of them come and go.
        departments: each with a partition of its own.
        users: people in four labs of each department (one below another), beside the departments' heads;
            some work in two departments.
    """
    guests = [f"u{number}" for number in range(0, users, 50)] if departments > 1 else []
    parts = [_HEAD, "node_groups:\n", *_groups(nodes), "departments:\n"]
    parts += [_department(number, departments, users, guests) for number in range(departments)]
    parts += ["partitions:\n", "  - {name: debug, node_groups: [thin], max_time: 00:30:00, default: true}\n"]
    if guests:
        parts += ["default_accounts:\n", *(f"  {user}: {_home(user, departments)}\n" for user in guests)]
    return "".join([*parts, _TIERS])


def _groups(nodes: int) -> Iterator[str]:
    left = nodes
    for place, (name, part, gpus, leaves) in enumerate(_GROUPS):
        count = left if place == len(_GROUPS) - 1 else max(1, int(nodes * part))
        left -= count
        stated = f"{{min: {count // 2}, max: {count}}}" if leaves else str(count)
        gpu = f", gpus: {{{gpus}}}" if gpus else ""
        hardware = "{sockets: 2, cores_per_socket: 32, threads_per_core: 2, memory_mib: 1000000}"
        yield f"  - {{name: {name}, count: {stated}, hardware: {hardware}{gpu}}}\n"


def _lab(user: int) -> int:
    return user % _LABS


def _home(user: str, departments: int) -> str:
    number = int(user[1:])
    return f"d{number % departments}-lab{_lab(number // departments)}"


def _department(number: int, departments: int, users: int, guests: list[str]) -> str:
    labs: list[list[str]] = [[] for _ in range(_LABS)]
    for user in range(number, users, departments):
        labs[_lab(user // departments)].append(f"u{user}")
    # People who work in two departments: the first lab has some of the department before.
    labs[0] += [user for user in guests if (int(user[1:]) + 1) % departments == number]
    groups = ", ".join(
        name for place, (name, *_) in enumerate(_GROUPS) if place == 0 or (number >> place) & 1
    )
    *above, last = [f"name: d{number}-lab{lab}{_people(members)}" for lab, members in enumerate(labs)]
    above[-1] += f", labs: [{{{last}}}]"
    lines = [
        f"  - name: d{number}",
        f"    supervisor: head{number}",
        f"    fair_share: {1 + number % 7}",
        f"    partition: {{node_groups: [{groups}], max_time: {1 + number % 5}-00:00:00}}",
        f"    limits: {{gpus: {64 + number}, cpus: 20000, gpus_per_user: 32, gpu_hours: 100000}}",
        "    labs:",
        *(f"      - {{{lab}}}" for lab in above),
    ]
    return "\n".join(lines) + "\n"


def _people(members: list[str]) -> str:
    return f", supervisor: {members[0]}, members: [{', '.join(members[1:])}]" if members else ""


if __name__ == "__main__":
    print(big_site(*map(int, sys.argv[1:4])), end="")
