"""What of a stack stays when its cluster goes: everything that has data, and what that cannot be without.

A file system cannot be without its subnet: a stack that is deleted while its file systems are kept stays
behind half, with a VPC that nobody manages (docs/decisions/0082). So a stack is not deleted but made smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpctools.hyperpod.stack.intrinsic import Json

_HOLDING = frozenset({"Retain", "RetainExceptOnCreate"})
_IN_TEXT = re.compile(r"\$\{([A-Za-z0-9]+)(?:\.[A-Za-z0-9.]+)?\}")

# Types that only say something about others: they stay where all that they speak of stays.
_ATTACHED = frozenset(
    {
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::S3::BucketPolicy",
        "AWS::SecretsManager::SecretTargetAttachment",
    }
)
# A database leaves a last snapshot; CloudFormation has no such thing for the rest.
_SNAPSHOT = frozenset({"AWS::RDS::DBInstance"})


def holds_data(resource: Mapping[str, Any]) -> bool:
    """Whether a resource outlives its stack, or did until its data was given up.

    Who gave it up may have been interrupted before anything of it was gone, and thought better of it since.
    """
    return _outlives(resource) or resource.get("UpdateReplacePolicy") == "Retain"


def _outlives(resource: Mapping[str, Any]) -> bool:
    return resource.get("DeletionPolicy") in _HOLDING


def kept_only(template: Json) -> Json | None:
    """The template of what stays; None when nothing has data.

    Args:
        template: the whole template; resources that have data say so by their policies.
    """
    resources: Mapping[str, Json] = template["Resources"]
    kept = {name for name, each in resources.items() if holds_data(each)}
    if not kept:
        return None
    kept = _with_needs(kept, resources)
    attached = {
        name
        for name, each in resources.items()
        if each["Type"] in _ATTACHED and references(each) & resources.keys() <= kept
    }
    staying = kept | attached
    outputs = {
        name: each
        for name, each in template.get("Outputs", {}).items()
        if references(each) & resources.keys() <= staying
    }
    made = {key: value for key, value in template.items() if key not in ("Resources", "Outputs")}
    made["Resources"] = {name: _staying(resources[name]) for name in sorted(staying)}
    return made | ({"Outputs": outputs} if outputs else {})


def _staying(resource: Json) -> Json:
    gone = holds_data(resource) and not _outlives(resource)
    return resource | {"DeletionPolicy": "Retain"} if gone else resource


def given_up(template: Json) -> Json:
    """The same template, whose data goes with the stack; a database leaves a last snapshot."""
    resources = {name: _given_up(each) for name, each in template["Resources"].items()}
    return template | {"Resources": resources}


def _given_up(resource: Json) -> Json:
    if not holds_data(resource):
        return resource
    if resource["Type"] not in _SNAPSHOT:
        return resource | {"DeletionPolicy": "Delete"}
    properties = resource["Properties"] | {"DeletionProtection": False}
    return resource | {"DeletionPolicy": "Snapshot", "Properties": properties}


def _with_needs(names: set[str], resources: Mapping[str, Json]) -> set[str]:
    found, open_names = set(names), set(names)
    while open_names:
        open_names = {need for name in open_names for need in references(resources[name])} & resources.keys()
        open_names -= found
        found |= open_names
    return found


def references(value: Any) -> set[str]:
    """The names that a part of a template speaks of: resources, and pseudo parameters."""
    return set(_references(value))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _references(each)
    if not isinstance(value, Mapping):
        return
    for key, each in value.items():
        if key == "Ref":
            yield each
        elif key == "Fn::GetAtt":
            yield each[0]
        elif key == "Fn::Sub":
            yield from _IN_TEXT.findall(each)
        elif key == "DependsOn":
            yield from [each] if isinstance(each, str) else each
        else:
            yield from _references(each)
