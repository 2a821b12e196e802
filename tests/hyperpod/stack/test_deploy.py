"""The template is deployed in moto, whole, in several shapes, and what comes of it is looked at there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations.aws import Aws, connect
from hpctools.hyperpod.operations.life import Life
from hpctools.hyperpod.operations.watch import Watch
from hpctools.hyperpod.stack import Outputs, read_outputs
from hpctools.hyperpod.stack.context import context_of
from hpctools.hyperpod.stack.entry import first_boot
from hpctools.site import Site
from tests.hyperpod.aws_rig import Told
from tests.hyperpod.stack.sites import example, smallest


def deployed(site: Site, aws: Aws, watch: Watch) -> Outputs:
    outputs = Life(site, aws, watch).bring_stacks()
    assert outputs is not None
    return outputs


def test_the_university_is_deployed_as_it_is_described(aws: Aws, watch: Watch, told: Told) -> None:
    outputs = deployed(example("university"), aws, watch)
    assert told.lines()[-1] == "stack hpctools-uni-gpu: brought up to date"

    vpc = aws.service("ec2").ask("describe_vpcs", VpcIds=[outputs.vpc])["Vpcs"][0]
    assert vpc["CidrBlock"] == "10.64.0.0/16"
    subnets = aws.service("ec2").ask("describe_subnets", SubnetIds=list(outputs.subnets))["Subnets"]
    assert [each["CidrBlock"] for each in subnets] == ["10.64.0.0/18", "10.64.64.0/18"]

    systems = aws.service("fsx").ask("describe_file_systems")["FileSystems"]
    assert {(each["FileSystemType"], each["StorageCapacity"]) for each in systems} == {
        ("LUSTRE", 4800),
        ("OPENZFS", 2048),
    }
    assert {each["SubnetIds"][0] for each in systems} == {outputs.subnets[0]}
    scratch, home = outputs.file_systems
    assert (scratch.mount, scratch.mount_name, home.mount, home.mount_name) == (
        "/fsx",
        "abcdefgh",
        "/home",
        None,
    )
    assert {scratch.dns_name, home.dns_name} == {each["DNSName"] for each in systems}

    buckets = {each["Name"] for each in aws.service("s3").ask("list_buckets")["Buckets"]}
    assert buckets == {
        "sagemaker-uni-gpu-123456789012-eu-central-1",
        "uni-gpu-data-123456789012-eu-central-1",
        "uni-gpu-checkpoints-123456789012-eu-central-1",
        "uni-gpu-checkpoints-123456789012-eu-west-1",
    }
    assert outputs.lifecycle_bucket in buckets
    for role in outputs.roles.values():
        assert aws.service("iam").ask("get_role", RoleName=role.rpartition("/")[2])["Role"]["Arn"] == role
    database = aws.service("rds").ask("describe_db_instances")["DBInstances"][0]
    assert outputs.database is not None
    assert (database["MultiAZ"], database["StorageEncrypted"]) == (True, True)
    assert (database["PubliclyAccessible"], database["Endpoint"]["Address"]) == (
        False,
        outputs.database.endpoint,
    )
    assert outputs.database.secret_arn.startswith("arn:aws:secretsmanager:eu-central-1:123456789012:secret:")

    # The entry leads to login nodes by address.
    balancer = aws.service("elbv2").ask("describe_load_balancers")["LoadBalancers"][0]
    assert (balancer["Type"], balancer["Scheme"]) == ("network", "internet-facing")
    assert balancer["DNSName"] == outputs.entry_host
    targets = aws.service("elbv2").ask("describe_target_groups", TargetGroupArns=[str(outputs.login_targets)])
    assert [(each["TargetType"], each["Port"]) for each in targets["TargetGroups"]] == [("ip", 22)]
    # What lifecycle step 85 does on a login node.
    aws.service("elbv2").ask(
        "register_targets", TargetGroupArn=outputs.login_targets, Targets=[{"Id": "10.64.0.17", "Port": 22}]
    )


def test_a_network_that_is_there_is_used_and_left_as_it_is(server: Any, watch: Watch) -> None:
    aws = connect("us-west-2")
    ec2 = aws.service("ec2")
    vpc = ec2.ask("create_vpc", CidrBlock="10.20.0.0/16")["Vpc"]["VpcId"]
    subnets = tuple(
        ec2.ask(
            "create_subnet", VpcId=vpc, CidrBlock=f"10.20.{part}.0/24", AvailabilityZone=f"us-west-2{zone}"
        )["Subnet"]["SubnetId"]
        for part, zone in enumerate("ab")
    )
    table = ec2.ask("create_route_table", VpcId=vpc)["RouteTable"]["RouteTableId"]
    image = ec2.ask("describe_images")["Images"][0]["ImageId"]
    raw = example("closed-network").model_dump(mode="python", exclude_unset=True)
    raw["aws"]["network"]["vpc"] |= {"id": vpc, "subnets": subnets, "route_tables": (table,)}
    raw["aws"]["login"]["scaling"] |= {"image": image}
    outputs = deployed(Site.model_validate(raw), aws, watch)

    assert (outputs.vpc, outputs.subnets) == (vpc, subnets)
    assert len(ec2.ask("describe_vpcs", Filters=[{"Name": "isDefault", "Values": ["false"]}])["Vpcs"]) == 1
    assert outputs.file_systems[0].dns_name == "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com"
    assert outputs.login_targets is None, (
        "the auto-scaling group puts its instances there, not the nodes themselves"
    )
    group = aws.service("autoscaling").ask("describe_auto_scaling_groups")["AutoScalingGroups"][0]
    assert (group["MinSize"], group["MaxSize"], group["NewInstancesProtectedFromScaleIn"]) == (1, 4, True)
    endpoints = ec2.ask("describe_vpc_endpoints")["VpcEndpoints"]
    assert len(endpoints) == 12
    balancer = aws.service("elbv2").ask("describe_load_balancers")["LoadBalancers"][0]
    assert balancer["Scheme"] == "internal"


def test_the_smallest_site_is_deployed(aws: Aws, watch: Watch) -> None:
    outputs = deployed(smallest(), aws, watch)
    assert outputs.file_systems == ()
    assert (outputs.database, outputs.entry_host, outputs.login_targets) == (None, None, None)


def test_outputs_of_an_older_stack_are_no_riddle() -> None:
    with pytest.raises(
        HpctoolsError, match=r"no output VpcId: it is older than the site file.*hyperpod update"
    ):
        read_outputs(smallest(), {})


def first_boot_text() -> str:
    return first_boot(context_of(example("closed-network"))).replace("${AWS::Region}", "us-west-2")


def test_the_first_boot_of_a_login_node_is_clean_shell(tmp_path: Path) -> None:
    script = tmp_path / "first-boot"
    script.write_text(first_boot_text())
    done = subprocess.run(
        ["shellcheck", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == ""


STAND_INS = {
    "curl": """case "$*" in
  *api/token*) echo TOKEN ;;
  *instance-id*) echo i-0123456789abcdef0 ;;
  *local-ipv4*) echo 10.20.0.9 ;;
esac
""",
    "aws": """case "$1 $2" in
  "ssm get-parameter") n=$(cat "$COUNT" 2>/dev/null || echo 0); echo $((n + 1)) >"$COUNT"
    [ "$n" -lt 2 ] && exit 254; echo s3://sagemaker-closed-gpu-scripts/closed-gpu/abc/ ;;
  "s3 cp") printf '#!/bin/bash\\necho started\\n' >"${@: -1}/on_create.sh"; echo "$5" ;;
esac
""",
    "sleep": "",
}


def test_the_first_boot_says_who_the_node_is_and_waits_for_the_scripts(tmp_path: Path) -> None:
    for name, text in STAND_INS.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)
    text = first_boot_text().replace("/opt/", f"{tmp_path}/opt/")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "COUNT": str(tmp_path / "count")}
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "started"), done.stderr
    told = json.loads((tmp_path / "opt/ml/config/resource_config.json").read_text())
    assert told == {
        "ClusterConfig": {"ClusterName": "closed-gpu"},
        "InstanceGroups": [
            {
                "Name": "login",
                "Instances": [
                    {
                        "InstanceName": "login-i-0123456789abcdef0",
                        "InstanceId": "i-0123456789abcdef0",
                        "CustomerIpAddress": "10.20.0.9",
                    }
                ],
            }
        ],
    }
    assert (tmp_path / "opt/hpctools/lifecycle").stat().st_mode & 0o777 == 0o700
