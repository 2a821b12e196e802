"""CloudFormation's functions as plain data, and how a template is put together. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

Json = dict[str, Any]

BODY_LIMIT = 51_200
"""Bytes that CreateChangeSet takes as TemplateBody (CloudFormation's quotas)."""


@dataclass(frozen=True)
class Part:
    """Resources that belong together, and what others may know of them."""

    resources: Mapping[str, Json] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)


def ref(name: str) -> Json:
    """What CloudFormation knows a resource by."""
    return {"Ref": name}


def attribute(name: str, key: str) -> Json:
    """An attribute of a resource."""
    return {"Fn::GetAtt": [name, key]}


def sub(text: str) -> Json | str:
    """A text with `${...}` of pseudo parameters and resources; a text without any stays one."""
    return {"Fn::Sub": text} if "${" in text else text


def arn(service: str, resource: str, *, region: bool = True, account: bool = True) -> Json | str:
    """An ARN in the stack's partition, region and account."""
    where = "${AWS::Region}" if region else ""
    owner = "${AWS::AccountId}" if account else ""
    return sub(f"arn:${{AWS::Partition}}:{service}:{where}:{owner}:{resource}")


def joined(values: Sequence[Any]) -> Any:
    """Several values as one output, with commas between."""
    if all(isinstance(value, str) for value in values):
        return ",".join(values)
    return {"Fn::Join": [",", list(values)]}


Kept = Literal["Delete", "Retain", "RetainExceptOnCreate"]


def resource(
    kind: str, properties: Mapping[str, Any], *, kept: Kept | None = None, after: Sequence[str] = ()
) -> Json:
    """A resource.

    Args:
        kind: its type.
        properties: its properties; those that are None are left out.
        kept: whether it outlives the stack; what is kept also outlives a change that would replace it.
            `RetainExceptOnCreate` leaves nothing behind of a stack that could not be made; it is for what has
            no name of its own, since CloudFormation cannot take that up again later.
        after: resources that have to be there first.
    """
    made: Json = {"Type": kind}
    if kept:
        made |= {"DeletionPolicy": kept, "UpdateReplacePolicy": "Delete" if kept == "Delete" else "Retain"}
    if after:
        made["DependsOn"] = after[0] if len(after) == 1 else sorted(after)
    stated = {key: value for key, value in properties.items() if value is not None}
    return made | ({"Properties": stated} if stated else {})


def template(description: str, parts: Sequence[Part]) -> Json:
    """A whole template; the same parts give the same template, in whatever order they come.

    Raises:
        ValueError: two parts have a resource or an output of the same name.
    """
    resources = _together([part.resources for part in parts])
    outputs = _together([part.outputs for part in parts])
    made: Json = {"AWSTemplateFormatVersion": "2010-09-09", "Description": description}
    made["Resources"] = {name: resources[name] for name in sorted(resources)}
    if outputs:
        made["Outputs"] = {name: {"Value": outputs[name]} for name in sorted(outputs)}
    return made


def _together(several: Sequence[Mapping[str, Any]]) -> Json:
    together: Json = {}
    for each in several:
        twice = together.keys() & each.keys()
        if twice:
            raise ValueError(f"two parts of the template name {sorted(twice)}")
        together |= each
    return together


class _Dumper(yaml.SafeDumper):
    """Without anchors and aliases: CloudFormation refuses them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(made: Json) -> str:
    """The template as people read it."""
    head = {key: value for key, value in made.items() if not isinstance(value, dict)}
    parts = [yaml.dump(head, Dumper=_Dumper, sort_keys=True, width=110)]
    for key in ("Resources", "Outputs"):
        if key in made:
            parts.append(yaml.dump({key: made[key]}, Dumper=_Dumper, sort_keys=True, width=110))
    return "\n".join(parts)


def as_body(made: Json) -> str:
    """The template as CloudFormation is given it: short, since it takes so much and no more."""
    return json.dumps(made, sort_keys=True, separators=(",", ":"))
