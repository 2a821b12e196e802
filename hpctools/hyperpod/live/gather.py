"""Asking AWS: a read-only question for each thing that a cluster's files name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import unquote

from hpctools.errors import UnreachableError
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.live import named, network
from hpctools.hyperpod.live.facts import AwsFacts, FileSystem, Plan, Role, Statement, Unseen
from hpctools.hyperpod.operations.aws import NO_NAME_AT_AWS, Aws, RefusedError

Found = TypeVar("Found")
_NOT_THERE = frozenset(
    {"NoSuchEntity", "FileSystemNotFound", "ResourceNotFound", "ResourceNotFoundException", "NoSuchBucket",
     NO_NAME_AT_AWS}
)  # fmt: skip
_MOST_PAGES = 10  # of 1000 objects; lifecycle scripts are some dozens


@dataclass
class _Asking:
    """Notes what nobody tells, and goes on: one service that is down leaves the others to ask."""

    unseen: list[Unseen] = field(default_factory=list)

    def part(self, what: str, ask: Callable[[], Found]) -> Found | None:
        try:
            return ask()
        except RefusedError as error:
            remedy = error.remedy or "allow these credentials to see it"
            self.unseen.append(Unseen(what, error.message, remedy))
        except UnreachableError as error:
            self.unseen.append(Unseen(what, error.message, error.remedy, silent=True))
        return None


def gather(files: Files, aws: Aws) -> AwsFacts:
    """Ask AWS about everything that the files name.

    Raises:
        UnreachableError: there are no credentials, or AWS does not even say whose they are.
    """
    asking = _Asking()
    account = aws.account()
    subnets = asking.part("subnets", lambda: network.subnets(aws, _subnets(files)))
    types = named.distinct([place for group in files.groups for place in named.types(group)])
    offered = asking.part("instance types", lambda: network.offered(aws, types))
    return AwsFacts(
        region=aws.region,
        account=account,
        subnets=subnets,
        groups=asking.part("security groups", lambda: network.security_groups(aws, _security_groups(files))),
        file_systems=asking.part("file systems", lambda: _file_systems(files, aws)),
        offered=offered,
        quotas=asking.part("quotas", lambda: _quotas(aws)),
        plans=asking.part("training plans", lambda: _plans(files, aws)),
        roles=asking.part("roles", lambda: _roles(files, aws)),
        objects=asking.part("lifecycle scripts", lambda: _objects(files, aws)),
        clusters=asking.part("clusters", lambda: _clusters(aws)),
        node_types=asking.part("the cluster", lambda: _node_types(files, aws)) if files.updates else None,
        unseen=tuple(asking.unseen),
    )


def _subnets(files: Files) -> list[str]:
    return named.distinct([place for each in named.networks(files) for place in named.subnets(each)])


def _security_groups(files: Files) -> list[str]:
    return named.distinct([place for each in named.networks(files) for place in named.security_groups(each)])


def _each(names: Iterable[str], ask: Callable[[str], Found | None]) -> Mapping[str, Found]:
    """Ask for each by name; leave out what is not there."""
    answers = {name: _asked(name, ask) for name in names}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _asked(name: str, ask: Callable[[str], Found | None]) -> Found | None:
    try:
        return ask(name)
    except RefusedError as error:
        if error.code not in _NOT_THERE:
            raise
        return None


def _file_systems(files: Files, aws: Aws) -> Mapping[str, FileSystem]:
    names = [dns.text for dns, _, _ in named.file_systems(files) if dns.text]
    identifiers = dict.fromkeys(named.identifier(name) for name in names)
    return _each(identifiers, lambda each: _file_system(aws, each))


def _file_system(aws: Aws, identifier: str) -> FileSystem | None:
    found = aws.service("fsx").ask("describe_file_systems", FileSystemIds=[identifier])["FileSystems"]
    if not found:
        return None
    answer = found[0]
    interfaces = answer.get("NetworkInterfaceIds", [])
    return FileSystem(
        kind=answer["FileSystemType"],
        dns_name=answer.get("DNSName", ""),
        mount_name=answer.get("LustreConfiguration", {}).get("MountName"),
        vpc=answer.get("VpcId", ""),
        status=answer.get("Lifecycle", ""),
        groups=network.groups_of_interfaces(aws, interfaces) if interfaces else None,
    )


def _quotas(aws: Aws) -> Mapping[str, float]:
    pages = aws.service("service-quotas").pages("list_service_quotas", ServiceCode="sagemaker")
    return {quota["QuotaName"]: quota["Value"] for page in pages for quota in page.get("Quotas", [])}


def _plans(files: Files, aws: Aws) -> Mapping[str, Plan]:
    names = named.distinct(named.texts(files, "TrainingPlanArn"))
    return _each(names, lambda arn: _plan(aws, arn))


def _plan(aws: Aws, arn: str) -> Plan | None:
    """A plan is asked for by its name, which another account's or region's may have, too."""
    answer = aws.service("sagemaker").ask("describe_training_plan", TrainingPlanName=arn.rsplit("/", 1)[-1])
    if answer["TrainingPlanArn"] != arn:
        return None
    reserved = answer.get("ReservedCapacitySummaries", [])
    return Plan(
        status=answer["Status"],
        targets=frozenset(answer.get("TargetResources", [])),
        types={each["InstanceType"]: each["TotalInstanceCount"] for each in reserved},
        zones=frozenset(each["AvailabilityZone"] for each in reserved if "AvailabilityZone" in each),
        available=answer.get("AvailableInstanceCount", 0),
    )


def _clusters(aws: Aws) -> frozenset[str]:
    pages = aws.service("sagemaker").pages("list_clusters")
    return frozenset(each["ClusterName"] for page in pages for each in page.get("ClusterSummaries", []))


def _node_types(files: Files, aws: Aws) -> Mapping[str, str] | None:
    name = files.request.at("ClusterName").text
    answer = _each([name] if name else [], lambda each: _cluster(aws, each))
    return next(iter(answer.values()), None)


def _cluster(aws: Aws, name: str) -> Mapping[str, str]:
    answer = aws.service("sagemaker").ask("describe_cluster", ClusterName=name)
    return {
        group["InstanceGroupName"]: group.get("SlurmConfig", {}).get("NodeType", "")
        for group in answer.get("InstanceGroups", [])
    }


def _objects(files: Files, aws: Aws) -> Mapping[str, frozenset[str] | None]:
    places = named.distinct(named.texts(files, "LifeCycleConfig", "SourceS3Uri"))
    return {place: _below(aws, place) for place in places if place.startswith("s3://")}


def _below(aws: Aws, uri: str) -> frozenset[str] | None:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    prefix = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
    try:
        pages = list(
            islice(aws.service("s3").pages("list_objects_v2", Bucket=bucket, Prefix=prefix), _MOST_PAGES)
        )
    except RefusedError as error:
        if error.code not in _NOT_THERE:
            raise
        return None
    found = (each["Key"] for page in pages for each in page.get("Contents", []))
    return frozenset(key.removeprefix(prefix) for key in found)


def _roles(files: Files, aws: Aws) -> Mapping[str, Role]:
    arns = named.distinct(named.texts(files, "ExecutionRole"))
    return _each(arns, lambda arn: _role(aws, arn))


def _role(aws: Aws, arn: str) -> Role | None:
    """A role is asked for by its name, which another account's or path's may have, too."""
    iam, name = aws.service("iam"), arn.rsplit("/", 1)[-1]
    role = iam.ask("get_role", RoleName=name)["Role"]
    if role["Arn"] != arn:
        return None
    attached = [
        each
        for page in iam.pages("list_attached_role_policies", RoleName=name)
        for each in page["AttachedPolicies"]
    ]
    inline = [each for page in iam.pages("list_role_policies", RoleName=name) for each in page["PolicyNames"]]
    documents = [_managed(aws, each["PolicyArn"]) for each in attached]
    documents += [
        iam.ask("get_role_policy", RoleName=name, PolicyName=each)["PolicyDocument"] for each in inline
    ]
    trust = _document(role["AssumeRolePolicyDocument"])
    return Role(
        services=frozenset(_services(trust)),
        policies=frozenset(each["PolicyName"] for each in attached),
        statements=tuple(one for document in documents for one in _statements(_document(document))),
    )


def _managed(aws: Aws, arn: str) -> object:
    iam = aws.service("iam")
    version = iam.ask("get_policy", PolicyArn=arn)["Policy"]["DefaultVersionId"]
    return iam.ask("get_policy_version", PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]


def _document(value: object) -> dict[str, Any]:
    """A policy; boto3 reads it already, other clients leave it as URL-encoded JSON."""
    read = json.loads(unquote(value)) if isinstance(value, str) else value
    return read if isinstance(read, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _services(trust: Mapping[str, Any]) -> Iterable[str]:
    for statement in _list(trust.get("Statement")):
        principal = statement.get("Principal", {})
        actions = _list(statement.get("Action"))
        if statement.get("Effect") == "Allow" and isinstance(principal, dict) and "sts:AssumeRole" in actions:
            yield from _list(principal.get("Service"))


def _statements(policy: Mapping[str, Any]) -> Iterable[Statement]:
    for one in _list(policy.get("Statement")):
        if "Condition" in one and one.get("Effect") == "Deny":
            continue  # whether it holds depends on the request
        actions = tuple(map(str, _list(one.get("Action"))))
        yield Statement(one.get("Effect") == "Allow", actions, tuple(map(str, _list(one.get("Resource")))))
