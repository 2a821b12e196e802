"""A document against a shape of botocore's: types, keys, limits, patterns, choices. All faults are told.

botocore's own check tells of types and of missing keys only; limits, patterns and choices it leaves to the
service, which tells one fault each time it is asked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.findings import Finding

# Java's classes of letters, digits and separators, of which Python's `re` knows none.
_CLASSES = {r"\p{L}": r"\w", r"\p{N}": r"\d", r"\p{Z}": " \u00a0\u2000-\u200a\u2028\u2029\u202f\u3000"}
_LONGEST_CHOICE = 8
_NAME = "letters and digits, with '-' between them only"
_EXAMPLES = {
    "ClusterName": _NAME,
    "ClusterInstanceGroupName": _NAME,
    "ClusterPartitionName": _NAME,
    "RoleArn": "the ARN of a role, arn:aws:iam::<12 digits>:role/<name>",
    "SecurityGroupId": "a security group, sg-<hexadecimal>",
    "SubnetId": "a subnet, subnet-<hexadecimal>",
    "S3Uri": "s3://<bucket>/<prefix>/",
    "ClusterDnsName": "the DNS name of a file system, fs-<hexadecimal>.fsx.<region>.amazonaws.com",
    "ClusterMountName": "the mount name that FSx chose: at most 8 letters and digits, no path",
    "ClusterFsxMountPath": "an absolute path",
    "TrainingPlanArn": "the ARN of a plan, arn:aws:sagemaker:<region>:<12 digits>:training-plan/<name>",
    "ClusterAccountingDatabaseSecretArn": "the ARN of a secret, arn:aws:secretsmanager:<region>:...",
    "EksClusterArn": "the ARN of an EKS cluster, arn:aws:eks:<region>:<12 digits>:cluster/<name>",
    "ImageId": "ami-<hexadecimal>, or default",
    "ImageReleaseVersion": "a release such as 1.2.3",
}
"""Shapes whose patterns people need not read."""


def check_shape(place: Place, shape: Any) -> Iterator[Finding]:
    """Yield everything in which a place is not what its shape (botocore.model.Shape) asks for."""
    if not place.readable:
        return
    kind = _KINDS.get(shape.type_name)
    if kind is None:
        return
    wanted, check = kind
    if not _is(place.value, shape.type_name):
        yield place.finding("type", _hint(place, shape, wanted))
        return
    yield from check(place, shape)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind in ("integer", "long"):
        return isinstance(value, int)
    return isinstance(value, _TYPES[kind])


def _hint(place: Place, shape: Any, wanted: str) -> str:
    if place.value is None:
        return f"write {wanted}, or leave the key out"
    if shape.type_name == "integer" and place.text and place.text.isdigit():
        return f"write {wanted}: {place.text} without quotes"
    if shape.type_name == "list":
        return f"write {wanted}, in square brackets"
    return f"write {wanted}"


def _structure(place: Place, shape: Any) -> Iterator[Finding]:
    members = shape.members
    for key in place.keys:
        if key in members:
            yield from check_shape(place.at(key), members[key])
        else:
            yield place.at(key).finding("unknown-key", _near_key(key, members), f"the key {key[:60]!a}")
    for key in shape.required_members:
        if not place.at(key).exists:
            yield place.finding("missing-key", f"add {key}", f"no {key}")
    if shape.metadata.get("union") and len(place.keys) != 1:
        choice = " or ".join(members)
        yield place.finding("union", f"write exactly one of {choice}", f"{len(place.keys)} keys")


def _near_key(key: str, members: Any) -> str:
    folded = {name.lower(): name for name in members}
    plain = key.replace("_", "").replace("-", "").lower()
    near = difflib.get_close_matches(plain, folded, n=1, cutoff=0.75)
    return f"write {folded[near[0]]}" if near else "take it away: the request has no such key"


def _list(place: Place, shape: Any) -> Iterator[Finding]:
    yield from _count(place, shape, len(place.value), "item")  # type: ignore[arg-type]
    for item in place.each():
        yield from check_shape(item, shape.member)


def _map(place: Place, shape: Any) -> Iterator[Finding]:
    yield from _count(place, shape, len(place.keys), "key")
    for key in place.keys:
        yield from check_shape(place.at(key), shape.value)


def _count(place: Place, shape: Any, count: int, what: str) -> Iterator[Finding]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and count < least:
        yield place.finding("limit", f"write {least} or more", _plural(count, what))
    if most is not None and count > most:
        yield place.finding("limit", f"write at most {most}", _plural(count, what))


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _string(place: Place, shape: Any) -> Iterator[Finding]:
    text = place.text or ""
    if shape.enum:
        if text not in shape.enum:
            yield place.finding("choice", _near_choice(text, list(shape.enum)))
        return
    faults = list(_count(place, shape, len(text), "character"))
    yield from faults
    pattern = shape.metadata.get("pattern")
    if pattern and not faults and not compiled(pattern).fullmatch(text):
        yield place.finding("pattern", f"write {_EXAMPLES.get(shape.name) or f'something like {pattern}'}")


def _near_choice(text: str, choices: list[str]) -> str:
    folded = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(text.lower(), folded, n=1, cutoff=0.6)
    if len(choices) <= _LONGEST_CHOICE:
        rest = f" (did you mean {folded[near[0]]}?)" if near else ""
        return f"write one of {', '.join(choices)}{rest}"
    return f"write {folded[near[0]]}?" if near else f"write one of the {len(choices)} that botocore lists"


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of the service model; it has to match the whole text."""
    for java, python in _CLASSES.items():
        pattern = pattern.replace(java, python)
    return re.compile(pattern)


def _integer(place: Place, shape: Any) -> Iterator[Finding]:
    number = place.number or 0
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and number < least:
        yield place.finding("limit", f"write {least} or more")
    if most is not None and number > most:
        yield place.finding("limit", f"write at most {most}")


def _anything(place: Place, shape: Any) -> Iterator[Finding]:
    yield from ()


_TYPES: dict[str, type | tuple[type, ...]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "boolean": bool,
    "float": (int, float),
    "double": (int, float),
    "timestamp": (str, int, float),
}
_KINDS: dict[str, tuple[str, Callable[[Place, Any], Iterator[Finding]]]] = {
    "structure": ("an object", _structure),
    "map": ("an object", _map),
    "list": ("a list", _list),
    "string": ("a text in double quotes", _string),
    "integer": ("a whole number", _integer),
    "long": ("a whole number", _integer),
    "boolean": ("true or false", _anything),
    "float": ("a number", _anything),
    "double": ("a number", _anything),
    "timestamp": ("a point in time", _anything),
}
