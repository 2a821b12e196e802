"""Hypothesis strategies: plain data of random valid sites, with every word that a site file may have."""

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
SECONDS = st.integers(60, 3600).map(lambda s: f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}")
PATH = st.from_regex(r"(/[a-z][a-z0-9._-]{0,5}){1,3}", fullmatch=True)
WORD = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,6}", fullmatch=True)
# What Slurm reads as one value: nothing that begins a comment, another setting or another line.
VALUE = st.one_of(
    st.from_regex(r"[!$-\[\]-~]{1,12}", fullmatch=True),
    st.from_regex(r'"[A-Za-z ,;%$=]{0,12}"', fullmatch=True),
    st.integers(0, 10**6),
)

GPU_MACHINES = {"p4d.24xlarge": ("a100", 8), "g5.12xlarge": ("a10g", 4), "g5.xlarge": ("a10g", 1)}
SLICES = ({"mig": {"1g.5gb": 7}}, {"mig": {"3g.20gb": 1, "1g.5gb": 4}}, {"mig": {"1g.10gb": 4}})
LIMIT_KEYS = [key for key in Limits.model_fields if key not in ("max_time", "settings")]


@st.composite
def sites(draw: st.DrawFn) -> dict[str, Any]:
    """A whole site; every name in it is its own, so that nothing collides."""
    stem = draw(NAME)
    names = iter([f"{stem}{number}" for number in range(100)])
    tiers = [next(names) for _ in range(draw(st.integers(1, 5)))]
    groups = [draw(_group(next(names), place)) for place in range(draw(st.integers(1, 4)))]
    # A cluster has a node that is always there.
    groups[0]["count"] = groups[0]["count"] if least(groups[0]) else max(1, most(groups[0]))
    _apart(groups)
    departments = [
        draw(_department(names, [g["name"] for g in groups])) for _ in range(draw(st.integers(1, 3)))
    ]
    labs = [lab for department in departments for lab in below(department)]
    chosen = draw(st.lists(st.sampled_from(labs), unique_by=id, max_size=3)) if labs else []
    guest = next(names)
    for lab in chosen:
        lab["members"].append(guest)
    shared = [draw(_shared(next(names), groups, departments, tiers)) for _ in range(draw(st.integers(0, 2)))]
    if shared:
        shared[0]["default"] = draw(st.booleans())
    return {
        # Somebody who works in several labs has to choose one; not always the first.
        "default_accounts": {guest: draw(st.sampled_from(chosen))["name"]} if chosen else {},
        "cluster": draw(_cluster(groups, names)),
        "node_groups": groups,
        "departments": departments,
        "partitions": shared,
        # Each tier may preempt those before it: never in a circle.
        "tiers": {name: draw(_tier(tiers[:place], default=place == 0)) for place, name in enumerate(tiers)},
    }


def below(owner: dict[str, Any]) -> list[dict[str, Any]]:
    """All labs of a department or lab, at any depth."""
    return [each for lab in owner.get("labs", ()) for each in (lab, *below(lab))]


def node_names(group: dict[str, Any]) -> list[str]:
    """The names of all nodes of a group as `_group` made them; the first `least(group)` always stay."""
    if "nodes" in group:
        return [f"{group['name']}n{number:03}" for number in range(1, most(group) + 1)]
    return [f"{group['name']}-{number}" for number in range(1, most(group) + 1)]


def most(group: dict[str, Any]) -> int:
    """Nodes that a group has at most."""
    return group["count"]["max"] if isinstance(group["count"], dict) else group["count"]


def least(group: dict[str, Any]) -> int:
    """Nodes of a group that are always there."""
    return group["count"]["min"] if isinstance(group["count"], dict) else group["count"]


@st.composite
def _cluster(draw: st.DrawFn, groups: list[dict[str, Any]], names: Any) -> dict[str, Any]:
    words = {
        "containment": st.fixed_dictionaries(
            {}, optional={key: st.booleans() for key in ("cores", "memory", "devices")}
        ),
        "job_container": st.fixed_dictionaries(
            {"base_path": PATH}, optional={"create_base_path": st.booleans(), "init_script": PATH}
        ),
        "scripts": st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(("prolog", "epilog", "prolog_slurmctld", "task_prolog"), PATH),
                "health_check": st.fixed_dictionaries({"program": PATH, "interval": SECONDS}),
            },
        ),
        "power_saving": st.fixed_dictionaries(
            {"resume_program": PATH, "suspend_program": PATH},
            optional={"suspend_time": SECONDS, "resume_timeout": SECONDS, "resume_rate": st.integers(0, 999)},
        ),
        "configuration": st.fixed_dictionaries(
            {}, optional={"distribution": st.sampled_from(["configless", "shared"]), "state_folder": PATH}
        ),
        # Keys that Slurm does not have, so that none of ours is changed; test_text looks at those.
        "parameters": st.dictionaries(st.from_regex(r"X[a-z]{1,5}", fullmatch=True), VALUE, max_size=3),
    }
    if any("mig" in group.get("gpus", {}).get("share", {}) for group in groups):
        # The slices of nodes that come and go cannot be detected.
        del words["power_saving"]
    cluster = draw(st.fixed_dictionaries({}, optional=words))
    cluster |= {"name": "c", "controllers": ["ctl.example"]}
    if draw(st.booleans()):
        cluster["topology"] = draw(_tree(groups, names))
    return cluster


@st.composite
def _tree(draw: st.DrawFn, groups: list[dict[str, Any]], names: Any) -> dict[str, Any]:
    """Leaves with whole groups, or with halves of them, below one switch at the top."""
    leaves: list[dict[str, Any]] = []
    for group in groups:
        nodes = node_names(group)
        if draw(st.booleans()) and len(nodes) > 1:
            cut = draw(st.integers(1, len(nodes) - 1))
            leaves += [{"name": next(names), "nodes": ",".join(part)} for part in (nodes[:cut], nodes[cut:])]
        else:
            leaves.append({"name": next(names), "node_groups": [group["name"]]})
    top = {"name": next(names), "switches": [leaf["name"] for leaf in leaves]}
    return {"kind": "tree", "switches": draw(st.permutations([top, *leaves]))}


def _apart(groups: list[dict[str, Any]]) -> None:
    """Leave slices only where nothing else is shared and no node comes and goes: no release refuses that."""
    shares = [group["gpus"]["share"] for group in groups if "share" in group.get("gpus", {})]
    for group in groups:
        share = group.get("gpus", {}).get("share", {})
        if "mig" in share and (isinstance(group["count"], dict) or any("mig" not in each for each in shares)):
            del group["gpus"]["share"]


@st.composite
def _group(draw: st.DrawFn, name: str, place: int) -> dict[str, Any]:
    machine = draw(st.sampled_from([*GPU_MACHINES, "m5.large"]))
    low = draw(st.integers(0, 30))
    group: dict[str, Any] = {
        "name": name,
        "instance_type": machine,
        "count": draw(st.sampled_from([low, {"min": low, "max": low + 7}])),
    }
    if draw(st.booleans()) and most(group):
        group["nodes"] = f"{name}n[{1:03}-{most(group):03}]"
        if draw(st.booleans()):
            group["addresses"] = f"10.0.{place}.[1-{most(group)}]"
    if machine in GPU_MACHINES:
        kind, count = GPU_MACHINES[machine]
        group["gpus"] = {"type": kind, "count": count}
        share = draw(st.sampled_from([None, {"shards_per_gpu": 4}, {"mps": 100}, *map(dict, SLICES)]))
        if share and ("mig" not in share or kind == "a100"):
            group["gpus"]["share"] = share
    words = {
        "features": st.lists(WORD, max_size=3, unique=True),
        "weight": st.integers(0, 1000),
        "parameters": st.dictionaries(st.from_regex(r"X[a-z]{1,5}", fullmatch=True), VALUE, max_size=2),
    }
    return group | draw(st.fixed_dictionaries({}, optional=words))


_TERMS = {
    "max_time": DURATION,
    "cpus_per_gpu": st.integers(1, 64),
    "priority_tier": st.integers(0, 100),
    "exclusive_user": st.booleans(),
    "over_subscribe": st.sampled_from(["no", "yes", "yes:3", "force:2"]),
    "parameters": st.dictionaries(st.from_regex(r"X[a-z]{1,5}", fullmatch=True), VALUE, max_size=2),
}


def _terms(groups: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    memory = st.sampled_from([{}, {"memory_mib_per_cpu": 1500}, {"memory_mib_per_gpu": 9000}])
    nodes = st.lists(st.sampled_from(groups), min_size=1, unique=True)
    terms = st.fixed_dictionaries({"node_groups": nodes}, optional=_TERMS)
    return st.tuples(terms, memory).map(lambda both: both[0] | both[1])


@st.composite
def _shared(
    draw: st.DrawFn,
    name: str,
    groups: list[dict[str, Any]],
    departments: list[dict[str, Any]],
    tiers: list[str],
) -> dict[str, Any]:
    partition = draw(_terms([group["name"] for group in groups])) | {"name": name.upper()}
    some = st.lists(st.sampled_from([d["name"] for d in departments]), min_size=1, unique=True)
    chosen = draw(st.sampled_from(["left out", "all", "some"]))
    if chosen != "left out":
        partition["departments"] = "all" if chosen == "all" else draw(some)
    if draw(st.booleans()):
        partition["tiers"] = draw(st.lists(st.sampled_from(tiers), min_size=1, unique=True))
    return partition


@st.composite
def _lab(draw: st.DrawFn, names: Any, depth: int) -> dict[str, Any]:
    lab = {
        "name": next(names),
        "members": [next(names) for _ in range(draw(st.integers(0, 2)))],
        "fair_share": draw(st.integers(1, 100)),
        "limits": draw(_limits()),
    }
    if draw(st.booleans()):
        lab["supervisor"] = next(names)
    if depth and draw(st.integers(0, 3)) == 0:
        lab["labs"] = [draw(_lab(names, depth - 1))]
    return lab


@st.composite
def _department(draw: st.DrawFn, names: Any, groups: list[str]) -> dict[str, Any]:
    labs = [draw(_lab(names, 2)) for _ in range(draw(st.integers(0, 2)))]
    department = {"name": next(names), "limits": draw(_limits()), "labs": labs}
    if draw(st.integers(0, 4)):
        department["supervisor"] = next(names)
    if draw(st.integers(0, 4)) == 0:
        department["members"] = [next(names)]
        department["members_limits"] = {department["members"][0]: draw(_limits())}
    if draw(st.integers(0, 5)):
        department["partition"] = draw(_terms(groups))
    return department


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
