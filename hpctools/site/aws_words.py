"""How AWS spells what a site may name: regions, zones, ids, ARNs, buckets, address ranges."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator

from hpctools.site.scalars import matching, refuse


def _matching(pattern: str, expected: str) -> BeforeValidator:
    return BeforeValidator(matching(pattern, expected))


def _identifier(prefix: str) -> BeforeValidator:
    return _matching(
        rf"{prefix}-[0-9a-f]{{8}}(?:[0-9a-f]{{9}})?", f"an id such as {prefix}-0123456789abcdef0"
    )


def _network(longest: int) -> Callable[[object], str]:
    def check(value: object) -> str:
        try:
            found = ipaddress.IPv4Network(value) if isinstance(value, str) and "/" in value else None
        except ValueError:
            found = None
        if found is None or found.prefixlen > longest:
            refuse(f"a range of IPv4 addresses without host bits, at most /{longest}, such as 10.64.0.0/16")
        return str(found)

    return check


RegionName = Annotated[
    str, _matching(r"[a-z]{2}(?:-[a-z]{2,12}){1,3}-\d", "an AWS region, for example eu-central-1")
]
ZoneId = Annotated[
    str,
    _matching(
        r"[a-z]{2,4}\d-az\d", "the id of an availability zone, for example euc1-az2 (names differ by account)"
    ),
]
VpcId = Annotated[str, _identifier("vpc")]
SubnetId = Annotated[str, _identifier("subnet")]
RouteTableId = Annotated[str, _identifier("rtb")]
DirectoryGroupId = Annotated[
    str,
    _matching(
        r"(?:[0-9a-f]{10}-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
        "the id of a group in Identity Center, for example 90677c608a-7afcdc23-22e4-4eb1-8f6f-2c9d1b6e1a55",
    ),
]
StackName = Annotated[
    str, _matching(r"[A-Za-z](?:-?[A-Za-z0-9]){0,127}", "a stack name: letters, digits and single '-'")
]
BucketName = Annotated[
    str,
    _matching(
        r"(?!xn--|sthree-)(?!.*-s3alias\Z)[a-z0-9](?:[a-z0-9-]{1,61})[a-z0-9]",
        "a bucket name: 3 to 63 lower-case letters, digits and '-'",
    ),
]
LifecycleBucketName = Annotated[
    str,
    _matching(
        r"sagemaker-[a-z0-9-]{0,52}[a-z0-9]", "a bucket name that starts with sagemaker-, as HyperPod wants"
    ),
]
KeyArn = Annotated[
    str,
    _matching(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[0-9a-f-]{36}",
        "the ARN of a KMS key, for example "
        "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    ),
]
IdentityCenterArn = Annotated[
    str,
    _matching(
        r"arn:aws[a-z-]*:sso:::instance/(?:sso)?ins-[0-9a-zA-Z.-]{16}",
        "the ARN of an Identity Center instance, for example arn:aws:sso:::instance/ssoins-1234567890abcdef",
    ),
]
ImageId = Annotated[str, _identifier("ami")]
EmailAddress = Annotated[
    str,
    _matching(r"(?=.{3,254}\Z)[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+", "an e-mail address"),
]
TagValue = Annotated[
    str, _matching(r"[A-Za-z0-9 _.:/=+@-]{1,256}", "a tag value: letters, digits, spaces and _.:/=+@-")
]
DomainName = Annotated[
    str,
    _matching(
        r"(?=.{3,64}\Z)[a-z0-9](?:-*[a-z0-9])*(?:\.[a-z0-9](?:-*[a-z0-9])*)+",
        "a domain in lower case, for example ad.example.edu",
    ),
]
FsxDnsName = Annotated[
    str,
    _matching(
        r"fs-[0-9a-f]{8,17}\.fsx\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?",
        "a file system's DNS name, for example fs-0123456789abcdef0.fsx.eu-central-1.amazonaws.com",
    ),
]
LustreMountName = Annotated[
    str, _matching(r"[A-Za-z0-9_-]{1,8}", "Lustre's mount name, for example abcdefgh")
]
NetworkRange = Annotated[str, BeforeValidator(_network(28))]
ClientRange = Annotated[str, BeforeValidator(_network(32))]
