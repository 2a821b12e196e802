"""What GPUs can be cut into, what is refused, and what is warned of."""

import itertools
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpctools.site import InvalidSiteError, Site, loads, warnings
from hpctools.site.mig import PRODUCTS, Product, fits, fractions, products

A100 = products("a100", "p4d.24xlarge")[0]

SITE = """\
cluster: {name: c, controllers: [ctl]}
node_groups: []
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [g]}}
tiers: {normal: {priority: 1, default: true}}
"""
HARDWARE = {"sockets": 1, "cores_per_socket": 8, "memory_mib": 1000}


def text(gpus: dict[str, Any], group: dict[str, Any] | None = None, **cluster: Any) -> str:
    data = yaml.safe_load(SITE)
    data["node_groups"] = [{"name": "g", "count": 1, "hardware": HARDWARE, "gpus": gpus, **(group or {})}]
    data["cluster"] |= cluster
    return yaml.safe_dump(data, sort_keys=False)


def sliced(kind: str = "a100", count: int = 1, **layout: int) -> dict[str, Any]:
    profiles = {name.replace("_", ".").lstrip("p"): n for name, n in layout.items()}
    return {"type": kind, "count": count, "share": {"mig": profiles}}


def refused(site: str) -> str:
    with pytest.raises(InvalidSiteError) as caught:
        loads(site)
    (finding,) = caught.value.findings
    return f"{finding.path}: found {finding.found}, expected {finding.expected}"


# NVIDIA MIG User Guide, "Supported MIG Profiles", the combinations on A100 in its figure, by compute slices.
COMPLETE = [
    "7",
    "43",
    "421",
    "4111",
    "33",
    "321",
    "3111",
    "322",
    "3211",
    "31111",
    "2221",
    "22111",
    "211111",
    "1111111",
]
NAMES = {"1": "1g.5gb", "2": "2g.10gb", "3": "3g.20gb", "4": "4g.20gb", "7": "7g.40gb"}


def layout(sizes: str) -> dict[str, int]:
    return {NAMES[size]: sizes.count(size) for size in sizes}


@pytest.mark.parametrize("sizes", COMPLETE)
def test_every_combination_of_the_guide_fits(sizes: str) -> None:
    assert fits(A100, layout(sizes))


def test_nothing_else_fits() -> None:
    """Every multiset of slices: it fits when a combination of the guide has all of it, and never else."""
    for length in range(1, 9):
        for sizes in itertools.combinations_with_replacement("12347", length):
            inside = any(all(whole.count(s) >= sizes.count(s) for s in set(sizes)) for whole in COMPLETE)
            assert fits(A100, layout("".join(sizes))) == inside, sizes


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.title)
def test_as_many_of_one_profile_as_nvidia_says(product: Product) -> None:
    """mig-parted, config-default.yaml: `all-<profile>` for each product."""
    most = {p.name: max(n for n in range(1, 9) if fits(product, {p.name: n})) for p in product.profiles}
    assert list(most.values()) == ([4, 2, 1] if product.model == "a30" else [7, 4, 3, 2, 1, 1])


@given(st.sampled_from(PRODUCTS), st.data())
def test_slices_make_up_one_gpu(product: Product, data: st.DataObject) -> None:
    names = [profile.name for profile in product.profiles]
    chosen = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 7), min_size=1))
    parts = fractions(product, chosen)
    assert sum(parts[name] * count for name, count in chosen.items()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("word", "instance", "titles"),
    [
        ("a100", None, ["A100 40 GB", "A100 80 GB"]),
        ("a100-80gb", None, ["A100 80 GB"]),
        ("nvidia_a100", "ml.p4d.24xlarge", ["A100 40 GB"]),
        ("a100", "p4de.24xlarge", ["A100 80 GB"]),
        ("h100_80gb_hbm3", None, ["H100 80 GB"]),
        ("h100", "p4d.24xlarge", []),
        ("v100", None, []),
    ],
)
def test_which_product_a_site_means(word: str, instance: str | None, titles: list[str]) -> None:
    assert [product.title for product in products(word, instance)] == titles


@pytest.mark.parametrize(
    ("site", "told"),
    [
        (
            text(sliced("a10g", p1g_5gb=1)),
            "gpus.type: found 'a10g' with mig, expected a GPU that has MIG: a30,",
        ),
        (text(sliced(p3g_20gb=3)), "share.mig: found 3 of 3g.20gb, expected slices that find places beside"),
        (
            text(sliced(p3g_20gb=1, p3g_40gb=1)),
            "found 1 of 3g.20gb, 1 of 3g.40gb, expected profiles of one GPU:",
        ),
        (
            text(sliced("a100", 8, p3g_40gb=2), {"instance_type": "p4d.24xlarge"}),
            "found 2 of 3g.40gb, expected profiles of one GPU: A100 40 GB: 1g.5gb,",
        ),
        (
            text(sliced("h100", 8, p1g_10gb=7), {"instance_type": "p4de.24xlarge"}),
            "found 'h100' on p4de.24xlarge, expected its GPU: A100 80 GB",
        ),
        (
            text(sliced("h100", 8, p1g_10gb=7), {"instance_type": "p5.48xlarge"}),
            "for slices that nvml calls nvidia_h100_80gb_hbm3_..., expected h100_80gb_hbm3: the nodes",
        ),
        (text(sliced(p3g_20gb=2), gpu_detection="explicit"), "found explicit detection and no mig_devices"),
        (
            text({"type": "a100", "count": 1, "share": {"mps": 100, "mig": {"7g.40gb": 1}}}),
            "exactly one of: sh",
        ),
        (
            text({"type": "a100", "count": 1, "share": {"mps": 100, "shards_per_gpu": 4}}),
            "exactly one of: sh",
        ),
        (text({"type": "a100", "count": 1}, {"gres": {"shard": 4}}), "'shard' has a meaning of its own"),
    ],
    ids=itertools.count(),
)
def test_what_cannot_work_is_refused(site: str, told: str) -> None:
    assert told in refused(site)


@pytest.mark.parametrize("share", [{"shards_per_gpu": 4}, {"mps": 100}, {"mig": {"3g.20gb": 2}}])
def test_whole_nodes_and_shared_gpus(share: dict[str, Any]) -> None:
    """OverSubscribe=EXCLUSIVE left on blocks GPU sharing: a partition gives one job all of the node."""
    data = yaml.safe_load(text({"type": "a100", "count": 1, "share": share}))
    data["departments"][0]["partition"]["over_subscribe"] = "exclusive"
    assert "over_subscribe: found exclusive, with the shared GPUs of g" in refused(yaml.safe_dump(data))


@pytest.mark.parametrize(
    "words",
    [
        {"OverSubscribe": "EXCLUSIVE"},
        {"oversubscribe": "exclusive"},
        {"Shared": "Exclusive"},
        {"Exclusive": "NODE"},
    ],
)
def test_whole_nodes_in_slurms_own_words_are_refused_too(words: dict[str, str]) -> None:
    data = yaml.safe_load(text({"type": "a100", "count": 1, "share": {"shards_per_gpu": 2}}))
    partition = data["departments"][0]["partition"]
    partition["parameters"] = words
    assert "partition.parameters: found exclusive, with the shared GPUs of g" in refused(yaml.safe_dump(data))
    partition["parameters"] = dict.fromkeys(words, "NO")
    assert loads(yaml.safe_dump(data)).group("g").gpus


def test_slurms_own_words_count_instead_of_the_sites() -> None:
    data = yaml.safe_load(text({"type": "a100", "count": 1, "share": {"shards_per_gpu": 2}}))
    terms = {"over_subscribe": "exclusive", "parameters": {"OverSubscribe": "NO"}}
    data["departments"][0]["partition"] |= terms
    assert loads(yaml.safe_dump(data)).group("g").gpus


def test_nvml_on_nodes_that_come_and_go() -> None:
    data = yaml.safe_load(
        text({"type": "a100", "count": 1, "detection": "nvml"}, {"count": {"min": 0, "max": 2}})
    )
    assert loads(yaml.safe_dump(data))
    data["cluster"]["power_saving"] = {"resume_program": "/r", "suspend_program": "/s"}
    assert "found nvml detection on nodes that come and go" in refused(yaml.safe_dump(data))


def test_devices_of_slices_are_all_and_each_once() -> None:
    gpus = sliced(p3g_20gb=2)
    one = {"gpu": 0, "profile": "3g.20gb", "instance": 21, "compute": 22}
    gpus["share"]["mig_devices"] = [one]
    assert "just these slices on each GPU from 0 to 0: 2 of 3g.20gb" in refused(text(gpus))
    gpus["share"]["mig_devices"] = [one, {**one, "compute": 23}]
    assert "each device file in mig_devices once" in refused(text(gpus))
    gpus["share"]["mig_devices"] = [one, {**one, "instance": 30, "compute": 31}]
    assert loads(text(gpus)).node_groups[0].gpus.detected_by(None) == "explicit"  # type: ignore[union-attr]


def test_how_gpus_are_detected() -> None:
    def way(gpus: dict[str, Any], **cluster: Any) -> str:
        site = loads(text(gpus, **cluster))
        found = site.node_groups[0].gpus
        assert found is not None
        return found.detected_by(site.cluster.gpu_detection)

    whole = {"type": "a100", "count": 1}
    assert way(whole) == "explicit"
    assert way(whole, gpu_detection="nvml") == "nvml"
    assert way({**whole, "detection": "explicit"}, gpu_detection="nvml") == "explicit"
    assert way(sliced(p3g_20gb=2)) == "nvml"


def told(site: Site) -> list[str]:
    return [f"{finding.path}: {finding.found}" for finding in warnings(site)]


def test_shards_surprise() -> None:
    data = yaml.safe_load(text({"type": "a10g", "count": 1, "share": {"shards_per_gpu": 4}}))
    data["departments"][0]["limits"] = {"gpus": 4}
    assert told(loads(yaml.safe_dump(data, sort_keys=False))) == [
        "node_groups[0].gpus.share.shards_per_gpu: shards, whose jobs see all of the GPU's memory and slow "
        "each other down",
        "departments[0].limits: limits on GPUs, which jobs with shards or MPS on g escape",
    ]


def test_mps_surprises() -> None:
    (finding,) = told(loads(text({"type": "v100", "count": 2, "share": {"mps": 100}})))
    assert finding.startswith("node_groups[0].gpus.share.mps: MPS, which serves one user at a time")


def test_memory_that_is_not_told_surprises() -> None:
    assert told(loads(text(sliced(p1g_10gb=7)))) == [
        "node_groups[0].gpus.type: 'a100', which may also be A100 40 GB without these slices"
    ]
    assert told(loads(text(sliced(p1g_10gb=4)))) == []
    assert told(loads(text(sliced("a100", 8, p1g_10gb=7), {"instance_type": "p4de.24xlarge"}))) == []
