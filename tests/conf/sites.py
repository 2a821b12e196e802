"""Hypothesis strategies: plain data of random valid sites."""

from typing import Any

from hypothesis import strategies as st

from hpctools.site.departments import Limits

NAME = st.from_regex(r"[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,3})?", fullmatch=True).filter(
    lambda name: name not in {"root", "default", "all", "none"}
)
LIMIT = st.integers(0, 500)
DURATION = st.integers(60, 30 * 86_400).map(
    lambda s: f"{s // 86_400}-{s // 3600 % 24:02}:{s // 60 % 60:02}:00"
)

GPU_MACHINES = {"p4d.24xlarge": ("a100", 8), "g5.12xlarge": ("a10g", 4), "g5.xlarge": ("a10g", 1)}
LIMIT_KEYS = [key for key in Limits.model_fields if key != "max_time"]


@st.composite
def sites(draw: st.DrawFn) -> dict[str, Any]:
    """A whole site; every name in it is its own, so that nothing collides."""
    names = iter(draw(st.lists(NAME, min_size=40, max_size=40, unique=True)))
    tiers = [next(names) for _ in range(draw(st.integers(1, 5)))]
    groups = [draw(_group(next(names))) for _ in range(draw(st.integers(1, 4)))]
    groups[0]["count"] = max(1, groups[0]["count"] if isinstance(groups[0]["count"], int) else 1)
    departments = [
        draw(_department(names, [g["name"] for g in groups])) for _ in range(draw(st.integers(1, 3)))
    ]
    labs = [lab for department in departments for lab in department["labs"]]
    chosen = draw(st.lists(st.sampled_from(labs), unique_by=id, max_size=3)) if labs else []
    guest = next(names)
    for lab in chosen:
        lab["members"].append(guest)
    return {
        # Somebody who works in several labs has to choose one; not always the first.
        "default_accounts": {guest: draw(st.sampled_from(chosen))["name"]} if chosen else {},
        "cluster": {"name": "c", "controllers": ["ctl.example"]},
        "node_groups": groups,
        "departments": departments,
        # Each tier may preempt those before it: never in a circle.
        "tiers": {name: draw(_tier(tiers[:place], default=place == 0)) for place, name in enumerate(tiers)},
    }


@st.composite
def _group(draw: st.DrawFn, name: str) -> dict[str, Any]:
    machine = draw(st.sampled_from([*GPU_MACHINES, "m5.large"]))
    low = draw(st.integers(0, 30))
    group: dict[str, Any] = {
        "name": name,
        "instance_type": machine,
        "count": draw(st.sampled_from([low, {"min": low, "max": low + 7}])),
    }
    if machine in GPU_MACHINES:
        kind, count = GPU_MACHINES[machine]
        group["gpus"] = {"type": kind, "count": count}
        share = draw(st.sampled_from([None, {"shards_per_gpu": 4}, {"mps": 100}, {"mig": {"1g.5gb": 7}}]))
        if share:
            group["gpus"]["share"] = share
    return group


@st.composite
def _department(draw: st.DrawFn, names: Any, groups: list[str]) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(groups), min_size=1, unique=True))
    labs = [
        {
            "name": next(names),
            "supervisor": next(names),
            "members": [next(names) for _ in range(draw(st.integers(0, 2)))],
            "fair_share": draw(st.integers(1, 100)),
            "limits": draw(_limits()),
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    return {
        "name": next(names),
        "supervisor": next(names),
        "partition": {"node_groups": chosen, "max_time": draw(DURATION)},
        "limits": draw(_limits()),
        "labs": labs,
    }


def _limits() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={**dict.fromkeys(LIMIT_KEYS, LIMIT), "max_time": DURATION})


def _tier(below: list[str], *, default: bool) -> st.SearchStrategy[dict[str, Any]]:
    preempts = st.lists(st.sampled_from(below), unique=True) if below else st.just([])
    return st.fixed_dictionaries(
        {"priority": st.integers(0, 1000), "default": st.just(default), "preempts": preempts},
        optional={
            "when_preempted": st.sampled_from(["cancel", "requeue"]),
            "grace_time": st.just("00:00:08"),
            "protected_time": DURATION,
            "max_time": DURATION,
            "gpus_per_user": LIMIT,
            "usage_percent": st.integers(0, 300),
        },
    )
