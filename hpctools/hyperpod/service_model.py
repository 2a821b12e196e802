"""What SageMaker says of its own requests: botocore's service model, read without any connection."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

from hpctools.errors import HpctoolsError

Operation = Literal["CreateCluster", "UpdateCluster"]
_REMEDY = "install it: pip install boto3"


@lru_cache(maxsize=1)
def _sagemaker() -> Any:
    try:
        session = import_module("botocore.session")
    except ImportError:
        raise HpctoolsError("botocore, which describes SageMaker's requests, is missing", _REMEDY) from None
    model = session.get_session().get_service_model("sagemaker")
    if "ClusterSlurmConfig" not in model.shape_names:
        found = f"botocore {version()} is too old to know SlurmConfig of CreateCluster"
        raise HpctoolsError(found, "upgrade it: pip install --upgrade boto3")
    return model


def request(operation: Operation) -> Any:
    """Return the shape (botocore.model.StructureShape) of a request.

    Raises:
        HpctoolsError: botocore is missing, or too old to know Slurm on HyperPod.
    """
    return _sagemaker().operation_model(operation).input_shape


def shape(name: str) -> Any:
    """Return a shape by name; raises like `request`."""
    return _sagemaker().shape_for(name)


def version() -> str:
    """Return botocore's release."""
    return str(import_module("botocore").__version__)
