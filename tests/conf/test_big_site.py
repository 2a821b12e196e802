"""The made-up site of the benchmarks: as large as asked for, and read back as such."""

import pytest

from bench.big_site import big_site
from hpctools.conf import compile
from hpctools.site import Site, loads
from hpctools.site.model import SiteAccount
from hpctools.site.warnings import warnings

from .slurm_reader import read


@pytest.mark.parametrize(
    ("nodes", "departments", "users"), [(20, 1, 0), (100, 10, 100), (333, 7, 51), (5000, 100, 2000)]
)
def test_it_is_as_large_as_asked_for(nodes: int, departments: int, users: int) -> None:
    site = loads(big_site(nodes, departments, users))
    told = read(compile(site).file("slurm.conf").text)
    assert len(told.nodes) == nodes
    assert len(told.partitions) == departments + 1
    assert any(node["state"] == "CLOUD" for node in told.nodes.values())
    assert {user.name for user in site.users()} == {
        *(f"u{number}" for number in range(users)),
        *(f"head{number}" for number in range(departments)),
    }


def test_ten_times_the_departments_are_looked_through_no_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes ten times as long then; one for each account would take a hundred times."""
    looks: list[str] = []
    accounts = Site.accounts

    def counting(site: Site) -> tuple[SiteAccount, ...]:
        looks.append(site.cluster.name)
        return accounts(site)

    monkeypatch.setattr(Site, "accounts", counting)
    counted = []
    for departments in (4, 40):
        site = loads(big_site(100, departments, 100))
        looks.clear()
        compile(site)
        warnings(site)
        counted.append(len(looks))
    assert counted[0] == counted[1]
