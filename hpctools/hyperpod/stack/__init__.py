"""The CloudFormation stack around a cluster: templates from the site, and what they give out."""

from hpctools.hyperpod.stack.context import lifecycle_bucket, stack_name
from hpctools.hyperpod.stack.intrinsic import as_yaml
from hpctools.hyperpod.stack.outputs import Outputs, read_outputs
from hpctools.hyperpod.stack.stack import copies, infrastructure

__all__ = ["Outputs", "as_yaml", "copies", "infrastructure", "lifecycle_bucket", "read_outputs", "stack_name"]
