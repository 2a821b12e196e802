"""AWS Network Load Balancer: its target group kept in step with the login nodes.

What is drained is deregistered: its connections stay for the target group's deregistration delay, and new
ones go elsewhere. A node that is silent stays registered, since the balancer's own health check knows whether
its sshd answers. Targets that are no login nodes of ours are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_REGISTERED = frozenset({"initial", "healthy", "unhealthy", "unused", "unavailable", "unhealthy.draining"})


class Elbv2(Protocol):
    """AWS's elbv2 (`hpctools.hyperpod.operations.aws.Service`)."""

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Ask for one thing; raises HpctoolsError."""


@dataclass(frozen=True)
class LoginNode:
    """A login node as the service knows it.

    Attributes:
        target: its address, or its instance's id where the group's targets are instances.
    """

    name: str
    target: str
    draining: bool


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
    """

    register: tuple[tuple[str, str], ...] = ()
    deregister: tuple[tuple[str, str], ...] = ()
    kept: str = ""

    @property
    def is_nothing(self) -> bool:
        """Whether all is as it should be."""
        return not (self.register or self.deregister)


def plan(nodes: Iterable[LoginNode], targets: Iterable[Target]) -> Steps:
    """What is to be done; the last one that is registered stays. Pure."""
    known = sorted(nodes, key=lambda node: node.name)
    present = {target.id for target in targets if target.state in _REGISTERED}
    register = tuple((n.name, n.target) for n in known if not n.draining and n.target not in present)
    leaving = tuple((n.name, n.target) for n in known if n.draining and n.target in present)
    staying = present - {target for _, target in leaving} | {target for _, target in register}
    if staying or not leaving:
        return Steps(register, leaving)
    return Steps(register, leaving[1:], kept=leaving[0][0])


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


def carry_out(elbv2: Elbv2, group: str, steps: Steps, port: int) -> None:
    """Register first, so that there is always somebody; to do either twice is no error.

    Raises:
        HpctoolsError: AWS refuses or does not answer.
    """
    for operation, pairs in (("register_targets", steps.register), ("deregister_targets", steps.deregister)):
        if pairs:
            targets: Sequence[Mapping[str, Any]] = [{"Id": target, "Port": port} for _, target in pairs]
            elbv2.ask(operation, TargetGroupArn=group, Targets=targets)
