"""AWS Network Load Balancer: its target group kept in step with the login nodes.

What is drained is deregistered: its connections stay for the target group's deregistration delay, and new
ones go elsewhere. So are addresses that a node of ours had: another machine may have them next. A node that
is silent is left as it is: registered it stays, since the balancer's own health check knows whether its sshd
answers; deregistered it stays, since somebody did that. Targets that are and were no login nodes of ours are
left alone. A group has addresses or instances: agents tell addresses, and AWS which instance has one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

from hpctools.errors import HpctoolsError, UsageError

_REGISTERED = frozenset({"initial", "healthy", "unhealthy", "unused", "unavailable", "unhealthy.draining"})
_UNHEALTHY = frozenset({"unhealthy", "unhealthy.draining"})
_ALIVE = ("pending", "running", "stopping", "stopped")
_MOST_VALUES = 200
"""Of a filter of describe_instances, by AWS's rules."""
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")

Kind = Literal["ip", "instance"]
"""What the targets of a group are, in AWS's words."""


class Elbv2(Protocol):
    """AWS's elbv2 (`hpctools.hyperpod.operations.aws.Service`)."""

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Ask for one thing; raises HpctoolsError."""


class Ec2(Protocol):
    """AWS's ec2 (`hpctools.hyperpod.operations.aws.Service`)."""

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of an answer; raises HpctoolsError."""


@dataclass(frozen=True)
class LoginNode:
    """A login node as the service knows it.

    Attributes:
        target: its address, or its instance's id where the group's targets are instances.
        silent: nothing was heard of it lately.
    """

    name: str
    target: str
    draining: bool
    silent: bool = False


@dataclass(frozen=True)
class Group:
    """A target group.

    Attributes:
        kind: None where nobody allows to ask.
        vpc: the network whose machines are its targets, by AWS's id.
    """

    kind: Kind | None
    vpc: str = ""


def can_be_target(target: str, kind: Kind | None) -> bool:
    """Whether AWS takes it in a group of this kind, or in one of any; a host's name is none."""
    if kind != "ip" and _INSTANCE.fullmatch(target):
        return True
    if kind == "instance":
        return False
    try:
        ipaddress.ip_address(target)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Target:
    """A target as AWS has it; `state` is AWS's word."""

    id: str
    port: int
    state: str


@dataclass(frozen=True)
class Steps:
    """What brings the target group in step.

    Attributes:
        register, deregister: node and target.
        kept: a node that stays although it is drained, since nobody could log in without it; empty for none.
        unusable: nodes whose target AWS would not take: neither registered nor, when drained, deregistered.
        others_stay: somebody is left when nothing can be registered.
    """

    register: tuple[tuple[str, str], ...] = ()
    deregister: tuple[tuple[str, str], ...] = ()
    kept: str = ""
    unusable: tuple[tuple[str, str], ...] = ()
    others_stay: bool = True

    @property
    def is_nothing(self) -> bool:
        """Whether all is as it should be."""
        return not (self.register or self.deregister or self.unusable)


def plan(
    nodes: Iterable[LoginNode],
    targets: Iterable[Target],
    former: Mapping[str, str] | None = None,
    kind: Kind | None = "ip",
) -> Steps:
    """What is to be done; the last one that is registered, and whose sshd answers, stays. Pure.

    A drained one that stays lets nobody in: one that tells of itself and is not drained is enough to let it
    go, whatever AWS says of its health.

    Args:
        former: the nodes that had them, by addresses which they no longer have. The id of an instance is
            never another one's: in a group of instances these say nothing.
        kind: of the group.
    """
    known = sorted(nodes, key=lambda node: node.name)
    there = [target for target in targets if target.state in _REGISTERED]
    present = {target.id for target in there}
    answer = {target.id for target in there if target.state not in _UNHEALTHY}
    wanted = [n for n in known if not n.draining and not n.silent and n.target not in present]
    register = tuple((n.name, n.target) for n in wanted if can_be_target(n.target, kind))
    heard = [n for n in known if not n.silent]
    unusable = tuple((n.name, n.target) for n in heard if not can_be_target(n.target, kind))
    leaving = [(n.name, n.target) for n in known if n.target in present and _takes_along(n, known)]
    leaving.sort(key=lambda each: each[1] not in answer)  # the first one stays if one has to
    lets_in = bool(leaving) and leaving[0][1] in answer
    current = {node.target for node in known}
    left = sorted((node, target) for target, node in (former or {}).items() if target not in current)
    leaving += [(node, target) for node, target in left if target in present]
    open_ = {n.target for n in heard if not n.draining} & present  # healthy or not: a flap, or AWS cannot see
    others = (answer | open_ if lets_in else present) - {target for _, target in leaving}
    if others or not leaving or register:
        return Steps(register, tuple(leaving), "", unusable, bool(others))
    return Steps(register, tuple(leaving[1:]), leaving[0][0], unusable)


def _takes_along(node: LoginNode, nodes: Iterable[LoginNode]) -> bool:
    """Whether a node's drain is its target's: one that is gone has left it to whoever has it now."""
    heirs = (each for each in nodes if each.target == node.target and not each.draining)
    return node.draining and not any(node.silent or not each.silent for each in heirs)


def read_group(elbv2: Elbv2, group: str) -> Group:
    """What a group (its ARN) is.

    Raises:
        UsageError: its targets are no machines.
        HpctoolsError: AWS refuses or does not answer.
    """
    (found,) = elbv2.ask("describe_target_groups", TargetGroupArns=[group])["TargetGroups"]
    kind = found["TargetType"]
    if kind not in get_args(Kind):
        raise UsageError(
            f"the targets of {group} are of type {kind}: no login node can be one",
            "name a group with targets of type ip or instance",
        )
    return Group(kind, found.get("VpcId", ""))


def as_instances(nodes: Iterable[LoginNode], ec2: Ec2, vpc: str) -> list[LoginNode]:
    """Nodes with the instances that have their addresses; one whose address none has stays as it is.

    Raises:
        HpctoolsError: AWS refuses or does not answer.
    """
    known = list(nodes)
    found = dict(_instances(ec2, vpc, sorted({each.target for each in known if _is_ipv4(each.target)})))
    return [replace(each, target=found.get(each.target, each.target)) for each in known]


def _is_ipv4(target: str) -> bool:
    try:
        return ipaddress.ip_address(target).version == 4
    except ValueError:
        return False


def _instances(ec2: Ec2, vpc: str, addresses: list[str]) -> Iterator[tuple[str, str]]:
    """Addresses and the instances that have them; those of other networks may have the same."""
    for first in range(0, len(addresses), _MOST_VALUES):
        wanted = {
            "vpc-id": [vpc],
            "instance-state-name": list(_ALIVE),
            "private-ip-address": addresses[first : first + _MOST_VALUES],
        }
        filters = [{"Name": name, "Values": values} for name, values in wanted.items()]
        for page in ec2.pages("describe_instances", Filters=filters):
            for each in (each for one in page["Reservations"] for each in one["Instances"]):
                yield each["PrivateIpAddress"], each["InstanceId"]


def read_targets(elbv2: Elbv2, group: str) -> tuple[Target, ...]:
    """The targets of a group (its ARN).

    Raises:
        HpctoolsError: AWS refuses or does not answer.
    """
    described = elbv2.ask("describe_target_health", TargetGroupArn=group)["TargetHealthDescriptions"]
    return tuple(
        Target(
            each["Target"]["Id"], int(each["Target"]["Port"]), each.get("TargetHealth", {}).get("State", "")
        )
        for each in described
    )


def of_other_ports(
    nodes: Iterable[LoginNode], targets: Iterable[Target], port: int
) -> tuple[tuple[str, Target], ...]:
    """Nodes that are registered, but with other ports than theirs: people come out at these. Pure."""
    names = {node.target: node.name for node in sorted(nodes, key=lambda node: node.name, reverse=True)}
    found = (each for each in targets if each.state in _REGISTERED and each.port != port)
    return tuple((names[each.id], each) for each in found if each.id in names)


def carry_out(elbv2: Elbv2, group: str, steps: Steps, port: int, targets: Iterable[Target]) -> None:
    """Register first, so that there is always somebody; to do either twice is no error.

    What leaves is named as it came: AWS knows a target by its id and its port, and one may be there with
    several. One that AWS does not take keeps the others from nothing: all are tried, each by itself, and what
    leaves leaves, as long as somebody stays.

    Args:
        port: of the nodes' sshds, for those that come.
        targets: as AWS has them now.

    Raises:
        HpctoolsError: AWS refused or did not answer; the first of its answers.
    """
    failed: list[HpctoolsError] = []
    there = [each for each in targets if each.state in _REGISTERED]

    def tell(operation: str, target: str, *ports: int) -> None:
        named = [{"Id": target, "Port": each} for each in ports]
        try:
            elbv2.ask(operation, TargetGroupArn=group, Targets=named)
        except HpctoolsError as error:
            failed.append(error)

    for _, target in steps.register:
        tell("register_targets", target, port)
    none_came = len(failed) == len(steps.register)
    spared = 1 if none_came and not steps.others_stay else 0
    for _, target in steps.deregister[spared:]:
        tell("deregister_targets", target, *(each.port for each in there if each.id == target))
    if failed:
        raise failed[0]
