"""Every golden site and example before the real slurmctld of each release: no error, and all is there."""

import re
from pathlib import Path

import pytest

from hpctools.conf import Facts, compile
from hpctools.conf.preflight import preflight
from hpctools.errors import SiteError
from hpctools.sandbox import releases
from hpctools.site import Site, loads

ROOT = Path(__file__).parents[2]
SITES = sorted([*ROOT.glob("tests/golden/*/site.yaml"), *ROOT.glob("slurm-conf/examples/*/site.yaml")])

# What a release lacks, and says so.
REFUSED = {
    ("22.05", "tests/golden/blocks/site.yaml"): "does not know a topology of blocks",
    ("22.05", "slurm-conf/examples/blocks/site.yaml"): "does not know a topology of blocks",
    ("22.05", "slurm-conf/examples/centre/site.yaml"): "knows neither `folders` nor `shared`",
}


def read(path: Path) -> Site:
    """A site whose programs are there: slurmctld looks for some of them."""
    return loads(re.sub(r"/etc/slurm/[a-z/-]+", "/usr/bin/true", path.read_text(encoding="utf-8")))


@pytest.mark.system
@pytest.mark.releases
@pytest.mark.parametrize("path", SITES, ids=lambda path: path.parent.name)
def test_slurmctld_boots_what_was_rendered_for_its_release(path: Path, slurm_release: str) -> None:
    installed = releases.find(slurm_release)
    site, facts = read(path), Facts(slurm_version=installed.release, slurm_user="slurm")
    refusal = REFUSED.get((installed.name, str(path.relative_to(ROOT))))
    if refusal:
        with pytest.raises(SiteError, match=refusal):
            compile(site, facts)
        return
    bundle = compile(site, facts)
    verdict = preflight({file.path: file.text for file in bundle.files}, root=installed.root)
    assert [problem.said for problem in verdict.problems] == []
    groups = [group.name for group in site.node_groups if group.role == "compute"]
    present = {name: site.node_names(name) + site.cloud_node_names(name) for name in groups}
    assert verdict.nodes == sum(map(len, present.values()))
    terms = [d.partition for d in site.departments if d.partition] + list(site.partitions)
    assert verdict.partitions == sum(any(present[name] for name in each.node_groups) for each in terms)
