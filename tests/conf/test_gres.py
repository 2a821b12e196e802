"""gres.conf and what goes with it: every way of having GPUs; what is counted, billed and refused."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from hpctools.conf import Facts, compile
from hpctools.conf.gres_check import explain
from hpctools.conf.topology import compute_groups
from hpctools.errors import SiteError
from hpctools.site import Site, load, loads

from .sites import sites

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = load(GOLDEN / "every-kind-of-gpu/site.yaml")
SLICES = load(GOLDEN / "mig-slices/site.yaml")


def gres(site: Site, **facts: Any) -> list[str]:
    return compile(site, Facts(**facts)).file("gres.conf").text.splitlines()[1:]


def setting(site: Site, key: str, **facts: Any) -> str:
    lines = compile(site, Facts(**facts)).file("slurm.conf").text.split()
    return next(word.partition("=")[2] for word in lines if word.startswith(f"{key}="))


def caps(first: int) -> str:
    return f"/dev/nvidia-caps/nvidia-cap{first},/dev/nvidia-caps/nvidia-cap{first + 1}"


def test_slices_by_nvml_by_stated_files_and_made_up() -> None:
    told = [
        f"NodeName=told-1 Name=gpu Type=a100_3g.20gb MultipleFiles=/dev/nvidia0,{caps(n)}" for n in (201, 203)
    ]
    hopper = "NodeName=hopper-1 Name=gpu Type=h100_80gb_hbm3 File=/dev/nvidia[0-1]"
    by_nvml = ["NodeName=mig-1 AutoDetect=nvml", *told, "NodeName=hopper-1 AutoDetect=nvml", hopper]
    assert gres(SLICES, slurm_version=(24, 11)) == ["AutoDetect=off", *by_nvml]
    made_up = gres(SLICES, slurm_version=(24, 11), made_up_gpus=True)
    assert made_up[7:] == [*told, hopper]
    assert [line.split("Type=")[1] for line in made_up[1:7]] == [
        f"a100_{profile} MultipleFiles=/dev/nvidia{gpu},{caps(n)}"
        for gpu, profile, n in [
            *((0, "3g.20gb", 1), (0, "1g.5gb", 3), (0, "1g.5gb", 5)),
            *((1, "3g.20gb", 15), (1, "1g.5gb", 17), (1, "1g.5gb", 19)),
        ]
    ]


def test_what_old_releases_get_wrong_stands_beside_the_line() -> None:
    old, new = (gres(SLICES, slurm_version=release) for release in ((23, 2, 5), (23, 2, 6)))
    assert [line for line in old if line not in new] == [
        "# This release names slices by the memory that it measures (3g.39gb for 3g.40gb): compare with",
        "# `slurmd -G` on a node.",
    ]
    old, new = (gres(KINDS, slurm_version=release) for release in ((23, 11, 4), (23, 11, 5)))
    warned = "# This release may give a GPU whole while another job has a part of it: ask for parts only."
    assert [line for line in old if line not in new] == [warned, warned]


def test_slices_beside_shards_where_slurm_mixes_them_up() -> None:
    data = yaml.safe_load((GOLDEN / "every-kind-of-gpu/site.yaml").read_text())
    data["node_groups"] += yaml.safe_load((GOLDEN / "mig-slices/site.yaml").read_text())["node_groups"][:1]
    both = loads(yaml.safe_dump(data))
    with pytest.raises(
        SiteError, match=r"Slurm 22\.05\.8 loses the MIG slices of mig beside .* of shard, mps"
    ):
        compile(both, Facts(slurm_version=(22, 5, 8)))
    assert compile(both, Facts(slurm_version=(23, 2, 7)))
    assert compile(both, Facts(slurm_version=(22, 5, 8), node_counts={"mig": 0}))


def test_types_are_counted_where_there_are_several() -> None:
    assert setting(KINDS, "AccountingStorageTRES") == (
        "gres/gpu,gres/gpu:a100,gres/gpu:a10g,gres/gpu:v100,gres/matlab,gres/mps,gres/shard"
    )
    one = loads((GOLDEN / "shared-gpus/site.yaml").read_text())
    assert setting(one, "AccountingStorageTRES") == "gres/gpu,gres/mps,gres/shard"


def test_slices_are_billed_by_what_they_take() -> None:
    """1g.5gb takes 1/7 of the compute, 3g.20gb 4/8 of the memory; one of these and two of those are a GPU."""
    weights = dict(part.split("=") for part in setting(SLICES, "TRESBillingWeights").split(","))
    assert (weights["GRES/gpu:a100_3g.20gb"], weights["GRES/gpu:a100_1g.5gb"]) == ("50.00", "18.18")
    assert (weights["GRES/gpu:h100_80gb_hbm3"], weights["GRES/gpu"]) == ("100.00", "18.18")


def test_a_kind_of_slice_that_costs_less_in_another_group_costs_the_less() -> None:
    """Two 3g.20gb alone are half a GPU each; beside two 1g.5gb each of them is more."""
    (mixed,) = [group for group in compute_groups(SLICES, Facts()) if group.name == "mig"]
    assert mixed.product is not None
    assert mixed.product.title == "A100 40 GB"


@given(sites())
@settings(max_examples=40, deadline=None)
def test_no_node_is_billed_more_than_its_gpus(data: dict) -> None:
    """Whatever a partition's groups are, all GPUs of a node weigh at most 100 each, by type and without."""
    site = loads(yaml.safe_dump(data, sort_keys=False))
    for words in (line.split() for line in compile(site).file("slurm.conf").text.splitlines()):
        told = dict(word.split("=", 1) for word in words if "=" in word)
        if "TRESBillingWeights" not in told or "PartitionName" not in told:
            continue
        weights = {
            k: float(v.rstrip("G")) for k, v in (p.split("=") for p in told["TRESBillingWeights"].split(","))
        }
        partitions = [d.partition for d in site.departments if d.partition] + list(site.partitions)
        names = next(
            terms.node_groups
            for terms in partitions
            if told["PartitionName"] in (getattr(terms, "name", None), *_owners(site, terms))
        )
        for group in compute_groups(site, Facts()):
            if group.name in names and group.gpus:
                slices = group.gpus.layout or {"": 1}
                typed = sum(
                    n
                    * weights.get(
                        f"GRES/gpu:{group.gpus.type}_{p}" if p else f"GRES/gpu:{group.gpus.type}", 0
                    )
                    for p, n in slices.items()
                )
                assert max(typed, sum(slices.values()) * weights["GRES/gpu"]) <= 100.1


def _owners(site: Site, terms: object) -> list[str]:
    return [department.name for department in site.departments if department.partition is terms]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "gres/gpu count reported lower than configured (5 < 6) [slurm@2026-11-21T15:38:20]",
            "5 of the 6 GPUs or",
        ),
        (
            "gpu:a100_1g.5gb count too low (3 < 4) [slurm@2026-11-21T15:38:20]",
            "3 of the 4 GPUs or MIG slices",
        ),
        ("gres/matlab count too low (1 < 2)", "1 of the 2 matlab that"),
        ("Not responding", None),
        ("", None),
    ],
)
def test_why_a_node_is_invalid(reason: str, told: str | None) -> None:
    found = explain("mig-1", reason, SLICES.group("mig").gpus)
    assert (found and told and told in found.message) == (True if told else None)
    if found:
        assert "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:4" in found.remedy
        assert "nvidia-smi mig -cgi" in found.remedy


PAGE = (Path(__file__).parents[2] / "docs/gpus.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), ids=["ways", "devices"])
def test_the_examples_of_the_page_compile(text: str) -> None:
    assert gres(loads(text))
