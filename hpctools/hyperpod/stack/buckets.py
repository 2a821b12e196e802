"""Buckets: the nodes' scripts, data, checkpoints, and the checkpoints' copies in another region."""

from __future__ import annotations

from typing import Any

from hpctools.hyperpod.stack.context import Context, bucket_name
from hpctools.hyperpod.stack.intrinsic import Json, Kept, Part, arn, attribute, ref, resource, sub
from hpctools.hyperpod.stack.roles import allow, document, role
from hpctools.site.aws_storage import CheckpointBucket

_ABANDONED_UPLOAD_DAYS = 7
_OLD_SCRIPTS_DAYS = 90


def lifecycle_bucket_name(context: Context) -> Any:
    """The bucket of the nodes' scripts; HyperPod takes only names that start with `sagemaker-`."""
    return bucket_name(context.aws.buckets.lifecycle, "sagemaker-{}", context)


def data_bucket_name(context: Context) -> Any:
    """The bucket for data; None when there is none."""
    data = context.aws.buckets.data
    return bucket_name(data.name, "{}-data", context) if data else None


def checkpoint_bucket_name(context: Context) -> Any:
    """The bucket for checkpoints; None when there is none."""
    checkpoints = context.aws.buckets.checkpoints
    return bucket_name(checkpoints.name, "{}-checkpoints", context) if checkpoints else None


def replica_bucket_name(context: Context) -> Any:
    """The bucket of the checkpoints' copies; None when there is none."""
    checkpoints = context.aws.buckets.checkpoints
    if checkpoints is None or checkpoints.replicate_to is None:
        return None
    stated = f"{checkpoints.name}-copy" if checkpoints.name else None
    return bucket_name(stated, "{}-checkpoints", context, checkpoints.replicate_to)


def bucket_arn(name: Any, path: str = "") -> Any:
    """The ARN of a bucket by its name, or of what is below it."""
    text = name if isinstance(name, str) else name["Fn::Sub"]
    return arn("s3", f"{text}{path}", region=False, account=False)


def buckets(context: Context) -> Part:
    """The buckets of the cluster's region."""
    key = context.aws.kms_key
    stated = context.aws.buckets
    scripts = lifecycle_bucket_name(context)
    # What is in it can be uploaded again; AWS deletes no bucket that has something in it.
    made = {"LifecycleBucket": _bucket(context, scripts, _OLD_SCRIPTS_DAYS, key, kept="Delete")}
    if stated.data is not None:
        name = data_bucket_name(context)
        made["DataBucket"] = _bucket(context, name, stated.data.keep_old_versions_days, key)
    if stated.checkpoints is not None:
        made |= _checkpoints(context, stated.checkpoints)
    outputs = {name: ref(name) for name in made if name.endswith("Bucket")}
    return Part(made | _policies(made), outputs)


def replica(context: Context) -> Part:
    """What the other region has: the copies' bucket."""
    checkpoints = context.aws.buckets.checkpoints
    name = replica_bucket_name(context)
    if checkpoints is None or name is None:
        return Part()
    bucket = _bucket(context, name, checkpoints.keep_old_versions_days, checkpoints.replica_key)
    made = {"CheckpointCopies": bucket}
    return Part(made | _policies(made), {"CheckpointCopies": ref("CheckpointCopies")})


def _bucket(context: Context, name: Any, old_days: int, key: str | None, kept: Kept = "Retain") -> Json:
    closed = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    properties = {
        "BucketName": name,
        "BucketEncryption": {"ServerSideEncryptionConfiguration": [_encryption(key)]},
        "LifecycleConfiguration": {"Rules": _lifecycle_rules(old_days)},
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        "PublicAccessBlockConfiguration": dict.fromkeys(closed, True),
        "Tags": context.tag_list(),
        "VersioningConfiguration": {"Status": "Enabled"},
    }
    return resource("AWS::S3::Bucket", properties, kept=kept)


def _encryption(key: str | None) -> Json:
    if key is None:
        return {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    by_key = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    return {"ServerSideEncryptionByDefault": by_key, "BucketKeyEnabled": True}


def _lifecycle_rules(old_days: int) -> list[Json]:
    abandoned = {"DaysAfterInitiation": _ABANDONED_UPLOAD_DAYS}
    return [
        {"Id": "abandoned-uploads", "Status": "Enabled", "AbortIncompleteMultipartUpload": abandoned},
        {
            "Id": "old-versions",
            "Status": "Enabled",
            "NoncurrentVersionExpiration": {"NoncurrentDays": old_days},
            "ExpiredObjectDeleteMarker": True,
        },
    ]


def _policies(made: Json) -> Json:
    return {
        f"{name}Policy": resource(
            "AWS::S3::BucketPolicy",
            {"Bucket": ref(name), "PolicyDocument": document([_encrypted_only(name)])},
        )
        for name in made
        if made[name]["Type"] == "AWS::S3::Bucket"
    }


def _encrypted_only(name: str) -> Json:
    return {
        "Sid": "EncryptedConnectionsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [attribute(name, "Arn"), sub(f"${{{name}.Arn}}/*")],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def _checkpoints(context: Context, stated: CheckpointBucket) -> Json:
    name = checkpoint_bucket_name(context)
    bucket = _bucket(context, name, stated.keep_old_versions_days, context.aws.kms_key)
    if stated.replicate_to is None:
        return {"CheckpointBucket": bucket}
    bucket["Properties"]["ReplicationConfiguration"] = _replication(context, stated)
    return {"CheckpointBucket": bucket, "ReplicationRole": _replication_role(context, stated)}


def _replication(context: Context, stated: CheckpointBucket) -> Json:
    destination: Json = {"Bucket": bucket_arn(replica_bucket_name(context))}
    rule: Json = {
        "Id": "checkpoints",
        "Status": "Enabled",
        "Priority": 1,
        "Filter": {"Prefix": ""},
        "DeleteMarkerReplication": {"Status": "Disabled"},
        "Destination": destination,
    }
    if stated.replica_key is not None:
        destination["EncryptionConfiguration"] = {"ReplicaKmsKeyID": stated.replica_key}
        rule["SourceSelectionCriteria"] = {"SseKmsEncryptedObjects": {"Status": "Enabled"}}
    return {"Role": attribute("ReplicationRole", "Arn"), "Rules": [rule]}


def _replication_role(context: Context, stated: CheckpointBucket) -> Json:
    """Source: Amazon S3 user guide, "Setting up permissions for live replication"."""
    source, copies = checkpoint_bucket_name(context), replica_bucket_name(context)
    read = ["s3:GetObjectVersionForReplication", "s3:GetObjectVersionAcl", "s3:GetObjectVersionTagging"]
    statements = [
        allow(["s3:GetReplicationConfiguration", "s3:ListBucket"], [bucket_arn(source)]),
        allow(read, [bucket_arn(source, "/*")]),
        allow(["s3:ReplicateObject", "s3:ReplicateDelete", "s3:ReplicateTags"], [bucket_arn(copies, "/*")]),
    ]
    if context.aws.kms_key is not None and stated.replica_key is not None:
        statements.append(allow(["kms:Decrypt"], [context.aws.kms_key]))
        statements.append(allow(["kms:Encrypt"], [stated.replica_key]))
    return role(context, ["s3.amazonaws.com"], statements)
