"""The table of instance types against AWS's own data, which moto carries."""

import gzip
import json
from importlib.resources import files

import pytest

from hpctools.site.instances import instance_names, known_instance


@pytest.fixture(scope="module")
def described() -> dict[str, dict]:
    raw = files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()
    return json.loads(gzip.decompress(raw))


@pytest.mark.parametrize("name", instance_names())
def test_the_table_says_what_describe_instance_types_says(name: str, described: dict[str, dict]) -> None:
    instance = known_instance(f"ml.{name}")
    told = described[name]
    assert instance is not None
    assert instance.cores == told["VCpuInfo"]["DefaultCores"]
    assert instance.threads == told["VCpuInfo"]["DefaultThreadsPerCore"]
    assert instance.memory_mib == told["MemoryInfo"]["SizeInMiB"]
    assert instance.gpus == sum(gpu["Count"] for gpu in told.get("GpuInfo", {}).get("Gpus", []))
    assert known_instance(name) == instance


def test_a_type_that_is_not_known() -> None:
    assert known_instance("ml.x9.huge") is None
