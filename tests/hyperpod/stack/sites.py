"""Sites for the tests of the stack: the examples, and the smallest and the largest that there can be."""

from pathlib import Path
from typing import Any

from hpctools.site import Site, load, loads

EXAMPLES = Path(__file__).parents[3] / "slurm-conf/examples"

SMALLEST = """\
cluster: {name: tiny, provider: hyperpod, controllers: [ctl]}
node_groups:
  - {name: gpu, instance_type: ml.g5.12xlarge, count: 2, gpus: {type: a10g, count: 4}}
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [gpu]}}
tiers:
  normal: {priority: 100, default: true}
hyperpod: {}
aws: {}
"""


def example(name: str) -> Site:
    return load(EXAMPLES / name / "site.yaml")


def smallest(**aws: Any) -> Site:
    """The smallest site, with more in its aws section."""
    site = loads(SMALLEST)
    raw = site.model_dump(mode="python", exclude_unset=True)
    raw["aws"] = aws
    return Site.model_validate(raw)


def largest() -> Site:
    """Everything at once, and more of it than most have: it must still fit into one request."""
    site = example("university")
    assert site.aws is not None
    more = {
        "network": {
            "zones": ("euc1-az1", "euc1-az2", "euc1-az3"),
            "endpoints": (
                "s3", "ssm", "ssmmessages", "ec2messages", "sts", "logs", "monitoring", "ecr.api", "ecr.dkr",
                "sagemaker.api", "secretsmanager", "elasticloadbalancing", "ec2", "sns",
            ),
        },
        "file_systems": tuple(
            {"name": f"scratch-{word}", "mount": f"/fsx-{word}", "size_gib": 2400} for word in "abcd"
        ),
        "login": {
            "load_balancer": {
                "internet_facing": True,
                "allow_from": tuple(f"10.{number}.0.0/16" for number in range(8)),
            },
            "scaling": {"instance_type": "m7i.large", "image": "ami-0123456789abcdef0"},
        },
        "directory": {"create": {"domain": "hpc.uni.example"}},
        "notifications": {"emails": tuple(f"person-{number}@uni.example" for number in range(5))},
        "tags": {f"Tag{number}": "value" for number in range(6)},
    }  # fmt: skip
    raw = site.model_dump(mode="python", exclude_unset=True)
    raw["aws"] = raw["aws"] | more
    return Site.model_validate(raw)
