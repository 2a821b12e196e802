"""A site made small enough for one machine."""

from __future__ import annotations

import pytest

from hpctools import site
from hpctools.errors import SandboxError
from hpctools.sandbox import blueprint
from hpctools.sandbox.blueprint import draw, example_site
from hpctools.sandbox.ports import choose, is_free
from hpctools.site import Site


@pytest.fixture(scope="module")
def university() -> Site:
    path = example_site()
    assert path is not None
    return site.load(path)


@pytest.mark.parametrize(
    ("nodes", "counts"),
    [
        (None, {"reserved": 4, "shared": 2, "spot": 0}),
        (6, {"reserved": 4, "shared": 2, "spot": 0}),
        (1, {"reserved": 1, "shared": 0, "spot": 0}),
        (5, {"reserved": 4, "shared": 1, "spot": 0}),
        (9, {"reserved": 7, "shared": 2, "spot": 0}),
    ],
)
def test_nodes_fill_the_groups_in_order(university: Site, nodes: int | None, counts: dict[str, int]) -> None:
    assert draw(university, nodes).node_counts == counts


@pytest.mark.parametrize("nodes", [0, -1, blueprint.MOST_NODES + 1])
def test_an_impossible_size_is_refused(university: Site, nodes: int) -> None:
    with pytest.raises(SandboxError, match="ask for 1 to"):
        draw(university, nodes)


def test_the_site_is_the_same_but_for_its_provider(university: Site) -> None:
    drawn = draw(university, 2).site
    assert drawn.cluster.provider == "sandbox"
    assert drawn.model_copy(update={"cluster": university.cluster}) == university


def test_every_daemon_with_a_port_has_one_and_waits_for_known_steps(university: Site) -> None:
    drawn = draw(university, 3)
    ports = dict(zip(drawn.port_names(), range(20000, 20100), strict=False))
    daemons = drawn.daemons(ports)
    assert {d.port for d in daemons if d.port} == set(ports)
    others = {"tables", "database", "cluster", "accounts", "bill"}
    assert {name for d in daemons for name in d.after} <= {d.name for d in daemons} | others
    assert {d.host for d in daemons} == {
        "ctl-1",
        "login-1",
        "login-2",
        "reserved-1",
        "reserved-2",
        "reserved-3",
    }


def test_people_are_numbered_and_unique(university: Site) -> None:
    persons = draw(university, 1).persons
    assert {"nlp1", "cv1", "dl1", "hpcapi"} <= {p.name for p in persons}
    assert len({p.uid for p in persons}) == len(persons) == len({p.name for p in persons})


def test_chosen_ports_are_different_and_free() -> None:
    found = choose([f"daemon-{n}" for n in range(40)])
    assert len(set(found.values())) == 40
    assert all(is_free(port) for port in found.values())
