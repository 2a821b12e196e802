"""How HyperPod spells what a site may name. Patterns are those of botocore's service model, or narrower."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from hpctools.site.scalars import matching

_ARN = r"arn:aws[a-z-]*"

RoleArn = Annotated[
    str,
    BeforeValidator(
        matching(
            _ARN + r":iam::\d{12}:role/?[a-zA-Z_0-9+=,.@/-]{1,500}",
            "the ARN of a role: arn:aws:iam::<account>:role/<name>",
        )
    ),
]

SecurityGroupId = Annotated[
    str, BeforeValidator(matching(r"sg-[0-9a-f]{8}(?:[0-9a-f]{9})?", "a security group: sg-<hexadecimal>"))
]

LifecycleUri = Annotated[
    str,
    BeforeValidator(
        matching(
            r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._/-]*)?",
            "a place in S3: s3://sagemaker-<rest of the bucket>/<prefix>/",
        )
    ),
]

KmsKey = Annotated[
    str, BeforeValidator(matching(r"[a-zA-Z0-9:/_-]{1,2048}", "a KMS key: its identifier, alias or ARN"))
]

TrainingPlanArn = Annotated[
    str,
    BeforeValidator(
        matching(
            _ARN + r":sagemaker:[a-z0-9-]+:\d{12}:training-plan/[A-Za-z0-9-]{1,63}",
            "the ARN of a training plan: arn:aws:sagemaker:<region>:<account>:training-plan/<name>",
        )
    ),
]

SecretArn = Annotated[
    str,
    BeforeValidator(
        matching(
            _ARN + r":secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}",
            "the ARN of a secret: arn:aws:secretsmanager:<region>:<account>:secret:<name>",
        )
    ),
]

TopicArn = Annotated[
    str,
    BeforeValidator(
        matching(
            _ARN + r":sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}",
            "the ARN of an SNS topic: arn:aws:sns:<region>:<account>:<name>",
        )
    ),
]

Image = Annotated[
    str,
    BeforeValidator(matching(r"ami-[0-9a-fA-F]{8,17}|default", "an image: ami-<hexadecimal>, or default")),
]

ImageRelease = Annotated[
    str, BeforeValidator(matching(r"\d+\.\d+\.\d+", 'a release of HyperPod\'s image, for example "1.2.3"'))
]

Schedule = Annotated[
    str, BeforeValidator(matching(r"cron\([^)\n]{9,248}\)", "a schedule, for example cron(0 3 ? * SUN *)"))
]

ClusterTagValue = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9 _.:/=+@-]{1,256}", "a tag value: letters, digits, spaces and _.:/=+-@, at most 256"
        )
    ),
]

InstancePartition = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,39}",
            "a partition name that HyperPod takes: letters, digits and '-' between them",
        )
    ),
]
"""botocore, CreateCluster: ClusterPartitionName; at most 40 characters, as elsewhere in a site."""
