"""`hpctools login nlb`: AWS's load balancer kept in step with the login nodes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hpctools.budget.service import find_service
from hpctools.cli.output import show
from hpctools.errors import UsageError
from hpctools.login.nlb import (
    Elbv2,
    Group,
    LoginNode,
    Steps,
    Target,
    as_instances,
    carry_out,
    of_other_ports,
    plan,
    read_group,
    read_targets,
)

if TYPE_CHECKING:
    from hpctools.hyperpod.operations.aws import Aws

_SURE_SECONDS = 120
"""An address that was given up is left alone for so long: its node may have it again with its next report."""


@click.command()
@click.option("--target-group", required=True, metavar="ARN", help="The target group of the login nodes.")
@click.option("--port", default=22, show_default=True, help="The sshd of the login nodes.")
@click.option("--target", "stated", multiple=True, metavar="NODE=TARGET",
              help="A node's address or instance id, where what the node tells is none.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def nlb(target_group: str, port: int, stated: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Register login nodes with a load balancer's target group, and deregister those that are drained.

    Connections of a drained node stay, for the target group's deregistration delay. Addresses that a node of
    ours no longer has are deregistered, too; a node that is silent is left as it is. For a timer
    (hp-login-nlb.timer): it does nothing when all is in step. The last node stays registered, drained or not.
    In a group of instances a node is the instance that has its address. Ends with 1 when a node has no
    address that AWS takes, or is no instance.

    \b
    Examples:
      hpctools login nlb --target-group ARN --dry-run
      hpctools login nlb --target-group ARN --target login-1=i-0abc123
    """
    from hpctools.hyperpod.operations.aws import connect

    fields = target_group.split(":")
    if len(fields) != 6 or not fields[5].startswith("targetgroup/"):
        raise UsageError(
            f"{target_group!r} is no ARN of a target group", "copy it from `aws elbv2 describe-target-groups`"
        )
    aws = connect(fields[3])
    elbv2 = aws.service("elbv2")
    told = find_service(os.environ).ask("GET", "/v1/login/nodes")
    group = _group(elbv2, target_group)
    nodes = _nodes(aws, group, login_nodes(told["nodes"], _targets(stated)))
    targets = read_targets(elbv2, target_group)
    steps = plan(nodes, targets, former_addresses(told.get("former", ())), group.kind)
    if not dry_run:
        carry_out(elbv2, target_group, steps, port, targets)
    show(asdict(steps) | {"dry_run": dry_run} if as_json else text(steps, group, dry_run=dry_run))
    for name, target in of_other_ports(nodes, targets, port):
        click.echo(warning(name, target, port), err=True)
    if steps.unusable:
        raise SystemExit(1)


def _group(elbv2: Elbv2, target_group: str) -> Group:
    """What the group is; not known where nobody allows to ask, as releases before this one did not."""
    from hpctools.hyperpod.operations.aws import RefusedError

    try:
        return read_group(elbv2, target_group)
    except RefusedError as error:
        if not error.denied:
            raise
        click.echo(f"{error}; until then nodes are registered as they are told or stated", err=True)
        return Group(None)


def _nodes(aws: Aws, group: Group, nodes: list[LoginNode]) -> list[LoginNode]:
    return as_instances(nodes, aws.service("ec2"), group.vpc) if group.kind == "instance" else nodes


def login_nodes(found: list[dict[str, Any]], targets: dict[str, str]) -> list[LoginNode]:
    """The service's nodes as the load balancer is to have them."""
    return [
        LoginNode(
            each["name"],
            targets.get(each["name"], each["address"]),
            each["state"] == "draining",
            _is_silent(each),
        )
        for each in found
    ]


def _is_silent(node: Mapping[str, Any]) -> bool:
    """Also of a drained node; of that one an older service tells only how long ago it was heard.

    Agents report once a minute at least.
    """
    ago = node["heard_seconds_ago"]
    if ago is None or node["state"] == "silent":
        return True
    return bool(node.get("silent", node["state"] == "draining" and ago >= _SURE_SECONDS))


def former_addresses(found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Nodes by addresses that they no longer have, for long enough."""
    return {each["address"]: each["node"] for each in found if each["left_seconds_ago"] >= _SURE_SECONDS}


def _targets(stated: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in stated]
    wrong = next(
        (each for each, (name, _, target) in zip(stated, pairs, strict=True) if not (name and target)), None
    )
    if wrong is not None:
        raise UsageError(f"{wrong!r} is no target", "expected such as login-1=10.0.0.5")
    return {name: target for name, _, target in pairs}


def warning(name: str, target: Target, port: int) -> str:
    """What is said of a node that people reach at another port than its sshd's."""
    return (
        f"{name}: {target.id} is registered with port {target.port}, and this is about port {port}: say "
        f"--port {target.port} if its sshd is there, else deregister it (aws elbv2 deregister-targets)"
    )


def text(steps: Steps, group: Group, *, dry_run: bool) -> str:
    """What was done, for people."""
    would = "would be " if dry_run else ""
    lines = [f"{name} ({target}) {would}registered" for name, target in steps.register]
    lines += [
        f"{name} ({target}) {would}deregistered: its sessions stay for a while"
        for name, target in steps.deregister
    ]
    if steps.kept:
        lines.append(f"{steps.kept} stays although it is drained: nobody could log in without it")
    lines += [_unusable(name, target, group) for name, target in steps.unusable]
    return "".join(f"{line}\n" for line in lines or ["all is in step"])


def _unusable(name: str, target: str, group: Group) -> str:
    if group.kind == "instance":
        return f"{name}: {target} is the address of no instance in {group.vpc}; say it: --target {name}=ID"
    return f"{name}: {target} is no address that a target group takes; say it: --target {name}=ADDRESS"
