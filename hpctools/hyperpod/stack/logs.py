"""Log groups, which forget."""

from __future__ import annotations

from typing import Any

from hpctools.hyperpod.stack.context import Context
from hpctools.hyperpod.stack.intrinsic import Json, Kept, resource

# CloudWatch Logs, PutRetentionPolicy: retentionInDays.
RETENTIONS = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
)  # fmt: skip


def retention(days: int) -> int:
    """The shortest time that CloudWatch knows and that is no shorter than asked for.

    Args:
        days: what the site says, at most 3653.
    """
    return next(each for each in RETENTIONS if each >= days)


def log_group(context: Context, name: Any, kept: Kept) -> Json:
    """A log group of the site's retention and key."""
    properties = {
        "LogGroupName": name,
        "RetentionInDays": retention(context.aws.keep_logs_days),
        "KmsKeyId": context.aws.kms_key,
        "Tags": context.tag_list(),
    }
    return resource("AWS::Logs::LogGroup", properties, kept=kept)
