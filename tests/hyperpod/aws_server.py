"""AWS as moto tells it, in a process of its own, with what moto's CloudFormation lacks, and with faults.

    python aws_server.py PORT_FILE

POST /-/rules   {"hold": {"stack": 2, "cluster": 2},  so many questions see a change under way
                 "refuse": [{"action": "X", "code": "Throttling", "times": 3}],
                 "kill": {"pid_file": "...", "action": "X"}}  SIGKILL to the caller when X is done
GET /-/log      the actions that were asked for, in their order
"""

import json
import os
import re
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

warnings.filterwarnings("ignore", message=".*not supported by moto.*")

from moto.cloudformation.models import CloudFormationBackend  # noqa: E402
from moto.core.common_models import CloudFormationModel  # noqa: E402
from moto.ds.models import ds_backends  # noqa: E402
from moto.ec2.models import EC2Backend, ec2_backends  # noqa: E402
from moto.ec2.models.flow_logs import FlowLogs  # noqa: E402
from moto.elbv2.models import ELBv2Backend  # noqa: E402
from moto.fsx.models import fsx_backends  # noqa: E402
from moto.logs.models import LogGroup, logs_backends  # noqa: E402
from moto.rds.models import DBInstance, DBParameterGroup  # noqa: E402
from moto.sagemaker.models import sagemaker_backends  # noqa: E402
from moto.secretsmanager.models import secretsmanager_backends  # noqa: E402
from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: E402
from werkzeug.serving import make_server  # noqa: E402

# moto puts the object itself where a template says Ref.
DBParameterGroup.physical_resource_id = property(lambda group: group.name)
# moto loses a database that is updated.
DBInstance.update_from_cloudformation_json = classmethod(
    lambda cls, original_resource, *_, **__: original_resource
)


def _delete_flow_log(name: str, stated: Any, account_id: str, region_name: str) -> None:
    """moto's CloudFormation deletes none."""
    ec2_backends[account_id][region_name].flow_logs.pop(name, None)


def _delete_log_group(name: str, stated: Any, account_id: str, region_name: str) -> None:
    logs_backends[account_id][region_name].delete_log_group(name)


FlowLogs.delete_from_cloudformation_json = staticmethod(_delete_flow_log)
LogGroup.delete_from_cloudformation_json = staticmethod(_delete_log_group)

_delete_vpc = EC2Backend.delete_vpc


def _with_its_routes(backend: Any, vpc_id: str) -> Any:
    """moto's CloudFormation deletes no route table, and its VPC wants them gone."""
    for table in backend.describe_route_tables(filters={"vpc-id": vpc_id}):
        if table.main_association_id is None:
            backend.route_tables.pop(table.id, None)
    return _delete_vpc(backend, vpc_id)


EC2Backend.delete_vpc = _with_its_routes

_create_load_balancer = ELBv2Backend.create_load_balancer


def _network_balancer(backend: Any, name: str, groups: Any, subnets: Any, *rest: Any, **stated: Any) -> Any:
    """moto's CloudFormation forgets the property Type; all balancers here are of type network."""
    stated["loadbalancer_type"] = "network"
    return _create_load_balancer(backend, name, groups, subnets, *rest, **stated)


ELBv2Backend.create_load_balancer = _network_balancer

_execute_change_set = CloudFormationBackend.execute_change_set


def _with_outputs(backend: Any, change_set_name: str, stack_name: str | None = None) -> None:
    """moto forgets the outputs of stacks that change sets made, and does not forget what they removed."""
    _execute_change_set(backend, change_set_name, stack_name)
    for stack in backend.stacks.values():
        if stack.name == stack_name:
            stack._parse_template()
            stack.output_map = stack._create_output_map()
            parsed = stack.resource_map._parsed_resources
            for name in [name for name in parsed if _is_gone(name, stack)]:
                del parsed[name]


def _is_gone(name: str, stack: Any) -> bool:
    return name[0].isupper() and "::" not in name and name not in stack.template_dict["Resources"]


CloudFormationBackend.execute_change_set = _with_outputs


class Made:
    """A resource of one of the types below."""

    kind = ""

    def __init__(self, identifier: str, attributes: dict[str, Any] | None = None) -> None:
        self.identifier = identifier
        self.attributes = attributes or {}

    @property
    def physical_resource_id(self) -> str:
        return self.identifier

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @classmethod
    def cloudformation_type(cls) -> str:
        return cls.kind

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return True

    def get_cfn_attribute(self, name: str) -> Any:
        return self.attributes[name]

    def is_created(self) -> bool:
        return True

    @classmethod
    def update_from_cloudformation_json(cls, original_resource: Any, *_: Any, **__: Any) -> Any:
        return original_resource

    @classmethod
    def delete_from_cloudformation_json(cls, *_: Any, **__: Any) -> None:
        return None


class FileSystem(Made, CloudFormationModel):
    __module__ = "moto.fsx.models"  # moto reads its services from it
    kind = "AWS::FSx::FileSystem"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        stated = cloudformation_json["Properties"]
        made = fsx_backends[account_id][region_name].create_file_system(
            client_request_token="",
            file_system_type=stated["FileSystemType"],
            storage_capacity=stated["StorageCapacity"],
            storage_type=stated["StorageType"],
            subnet_ids=stated["SubnetIds"],
            security_group_ids=stated["SecurityGroupIds"],
            tags=stated["Tags"],
            kms_key_id=stated.get("KmsKeyId"),
            windows_configuration=None,
            lustre_configuration=stated.get("LustreConfiguration"),
            ontap_configuration=None,
            file_system_type_version=stated.get("FileSystemTypeVersion"),
            open_zfs_configuration=stated.get("OpenZFSConfiguration"),
        )
        return cls(made.file_system_id, {"DNSName": made.dns_name, "LustreMountName": "abcdefgh"})

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        fsx_backends[account_id][region_name].file_systems.pop(resource_name, None)


class Secret(Made, CloudFormationModel):
    __module__ = "moto.secretsmanager.models"  # moto reads its services from it
    kind = "AWS::SecretsManager::Secret"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        made = secretsmanager_backends[account_id][region_name].create_secret(
            resource_name,
            "made by AWS",
            None,
            None,
            cloudformation_json["Properties"]["Tags"],
            None,
            "",
            [],
            False,
        )
        return cls(json.loads(made)["ARN"])


class MicrosoftAD(Made, CloudFormationModel):
    __module__ = "moto.ds.models"  # moto reads its services from it
    kind = "AWS::DirectoryService::MicrosoftAD"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        stated = cloudformation_json["Properties"]
        network = {"VpcId": stated["VpcSettings"]["VpcId"], "SubnetIds": stated["VpcSettings"]["SubnetIds"]}
        made = ds_backends[account_id][region_name].create_microsoft_ad(
            region_name, stated["Name"], "hpc", "Passw0rd-of-nobody", "", network, stated["Edition"], []
        )
        return cls(made, {"DnsIpAddresses": ["10.20.0.5", "10.20.1.5"]})


class BucketPolicy(Made, CloudFormationModel):
    __module__ = "moto.s3.models"  # moto reads its services from it
    kind = "AWS::S3::BucketPolicy"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        # moto would refuse everything to everybody: it sees no conditions, and we come without TLS.
        return cls(f"{cloudformation_json['Properties']['Bucket']}-policy")


class Faults:
    """moto, and what goes wrong before and after it."""

    def __init__(self) -> None:
        self.app = DomainDispatcherApplication(create_backend_app)
        self.forget()

    def forget(self) -> None:
        self.rules: dict[str, Any] = {}
        self.log: list[str] = []
        self.held = {"stack": 0, "cluster": 0}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if path.startswith("/-/"):
            return self._control(path, body, start_response)
        environ["wsgi.input"] = _Again(body)
        action = _action(environ, body)
        if path == "/moto-api/reset":
            self.forget()
        else:
            self.log.append(action)
        refusal = self._refusal(action)
        if refusal is not None:
            return _refuse(refusal, environ, start_response)
        return self._passed(action, environ, start_response)

    def _control(self, path: str, body: bytes, start_response: Any) -> Any:
        if path == "/-/rules":
            self.rules = json.loads(body)
            self.log.clear()
            self.held = {"stack": 0, "cluster": 0}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(self.log).encode()]

    def _refusal(self, action: str) -> str | None:
        for rule in self.rules.get("refuse", ()):
            if rule["action"] in (action, "*") and rule["times"] > 0:
                rule["times"] -= 1
                return str(rule["code"])
        return None

    def _passed(self, action: str, environ: dict[str, Any], start_response: Any) -> Any:
        missing = _what_moto_lacks(action, environ)
        if missing is not None:
            start_response("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
            return [json.dumps(missing).encode()]
        told: list[Any] = []
        parts = self.app(environ, lambda status, headers, *_: told.append((status, headers)))
        answer = self._held(action, b"".join(parts))
        _tell_least_counts()
        kill = self.rules.get("kill")
        if kill and action == kill["action"]:
            pid_file = Path(kill["pid_file"])
            while not pid_file.exists():
                time.sleep(0.01)
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
        status, headers = told[0]
        start_response(status, [each for each in headers if each[0].lower() != "content-length"])
        return [answer]

    def _held(self, action: str, answer: bytes) -> bytes:
        hold = self.rules.get("hold", {})
        if action in ("ExecuteChangeSet", "DeleteStack"):
            self.held["stack"] = hold.get("stack", 0)
        if action in ("CreateCluster", "UpdateCluster"):
            self.held["cluster"] = hold.get("cluster", 0)
        if action == "DescribeStacks" and self.held["stack"] > 0:
            self.held["stack"] -= 1
            return re.sub(rb"(?<=<StackStatus>)(CREATE|UPDATE|DELETE)_COMPLETE", rb"\1_IN_PROGRESS", answer)
        if action == "DescribeCluster" and self.held["cluster"] > 0:
            self.held["cluster"] -= 1
            return answer.replace(b'"InService"', b'"Creating"')
        return answer


def _what_moto_lacks(action: str, environ: dict[str, Any]) -> dict[str, Any] | None:
    if action == "UpdateCostAllocationTagsStatus":
        return {"Errors": []}
    if action != "UpdateCluster":
        return None
    stated = json.loads(environ["wsgi.input"].read())
    region = re.search(r"Credential=[^/]+/\d+/([^/]+)/", environ["HTTP_AUTHORIZATION"])
    assert region is not None
    cluster = sagemaker_backends["123456789012"][region[1]].clusters[stated["ClusterName"]]
    for group in stated["InstanceGroups"]:
        group["TargetCount"] = group["CurrentCount"] = group.pop("InstanceCount")
    cluster.instance_groups = stated["InstanceGroups"]
    return {"ClusterArn": cluster.arn}


def _tell_least_counts() -> None:
    """CreateCluster's MinInstanceCount is DescribeCluster's MinCount."""
    for region in sagemaker_backends["123456789012"].values():
        for cluster in region.clusters.values():
            for group in cluster.instance_groups:
                group["MinCount"] = group.get("MinInstanceCount")


class _Again:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def read(self, size: int = -1) -> bytes:
        part = self.body if size < 0 else self.body[:size]
        self.body = self.body[len(part) :]
        return part


def _action(environ: dict[str, Any], body: bytes) -> str:
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return str(target).rpartition(".")[2]
    stated = parse_qs(body.decode("utf-8", "replace")).get("Action")
    return stated[0] if stated else f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"


def _refuse(code: str, environ: dict[str, Any], start_response: Any) -> Any:
    if environ.get("HTTP_X_AMZ_TARGET"):
        text = json.dumps({"__type": code, "message": f"{code} by the test"})
        start_response("400 Bad Request", [("Content-Type", "application/x-amz-json-1.1")])
    else:
        told = f"<Code>{code}</Code><Message>{code} by the test</Message>"
        text = f"<ErrorResponse><Error>{told}</Error></ErrorResponse>"
        start_response("400 Bad Request", [("Content-Type", "text/xml")])
    return [text.encode()]


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, Faults(), threaded=True)
    place = Path(sys.argv[1])
    place.with_suffix(".new").write_text(str(server.server_port))
    place.with_suffix(".new").replace(place)
    server.serve_forever()
