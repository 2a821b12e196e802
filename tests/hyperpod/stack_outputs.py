"""What the stack of the university's example gives out, as DescribeStacks tells it."""

from hpctools.hyperpod.stack import Outputs, read_outputs
from hpctools.site import Site

RAW = {
    "VpcId": "vpc-0a1b2c3d4e5f60718",
    "SubnetIds": "subnet-0a1b2c3d4e5f60718,subnet-0a1b2c3d4e5f60719",
    "SecurityGroupId": "sg-0a1b2c3d4e5f60718",
    "ControllerRoleArn": "arn:aws:iam::111122223333:role/uni-controller",
    "LoginRoleArn": "arn:aws:iam::111122223333:role/uni-login",
    "ComputeRoleArn": "arn:aws:iam::111122223333:role/uni-compute",
    "LifecycleBucket": "sagemaker-uni-gpu-111122223333-eu-central-1",
    "DataBucket": "uni-gpu-data-111122223333-eu-central-1",
    "CheckpointBucket": "uni-gpu-checkpoints-111122223333-eu-central-1",
    "FileSystemScratchDnsName": "fs-0a1b2c3d4e5f60718.fsx.eu-central-1.amazonaws.com",
    "FileSystemScratchMountName": "abcdefgh",
    "FileSystemHomeDnsName": "fs-0a1b2c3d4e5f60719.fsx.eu-central-1.amazonaws.com",
    "DatabaseEndpoint": "uni-gpu.abcdefghijkl.eu-central-1.rds.amazonaws.com",
    "DatabasePort": "3306",
    "DatabaseSecretArn": "arn:aws:secretsmanager:eu-central-1:111122223333:secret:uni-gpu-AbCdEf",
    "TopicArn": "arn:aws:sns:eu-central-1:111122223333:uni-gpu",
    "LoginTargetsArn": "arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/uni/01234567",
    "EntryHost": "uni-gpu.elb.eu-central-1.amazonaws.com",
    "SessionDocument": "uni-gpu-session",
}
LIFECYCLE = "s3://sagemaker-uni-gpu-111122223333-eu-central-1/uni-gpu/0123456789ab/"


def outputs(site: Site) -> Outputs:
    return read_outputs(site, RAW)
