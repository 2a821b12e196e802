"""The service model: there, missing, or too old; and shapes that CreateCluster does not have today."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from botocore.model import ShapeResolver

from hpctools.errors import HpctoolsError
from hpctools.hyperpod import service_model
from hpctools.hyperpod.document import Document
from hpctools.hyperpod.shapes import check_shape


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    service_model._sagemaker.cache_clear()
    yield
    service_model._sagemaker.cache_clear()


def test_both_requests_are_known() -> None:
    assert service_model.request("CreateCluster").required_members == ["ClusterName"]
    assert "VpcConfig" not in service_model.request("UpdateCluster").members


def test_without_botocore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(HpctoolsError, match=r"is missing; install it: pip install boto3$"):
        service_model.request("CreateCluster")


def test_a_botocore_that_knows_no_slurm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would call SlurmConfig an unknown key."""
    old = SimpleNamespace(get_service_model=lambda name: SimpleNamespace(shape_names=["ClusterName"]))
    monkeypatch.setitem(sys.modules, "botocore.session", SimpleNamespace(get_session=lambda: old))
    with pytest.raises(HpctoolsError, match="too old to know SlurmConfig"):
        service_model.request("CreateCluster")


SHAPES = {
    "Top": {
        "type": "structure",
        "members": {
            "Labels": {"shape": "Labels"},
            "Share": {"shape": "Share"},
            "Ready": {"shape": "Ready"},
            "When": {"shape": "When"},
            "Blob": {"shape": "Blob"},
        },
    },
    "Labels": {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Text"}, "max": 2},
    "Text": {"type": "string", "max": 3},
    "Share": {"type": "double"},
    "Ready": {"type": "boolean"},
    "When": {"type": "timestamp"},
    "Blob": {"type": "blob"},
}


def found(value: object) -> list[tuple[str, str]]:
    shape = ShapeResolver(SHAPES).get_shape_by_name("Top")
    return [(each.pointer, each.rule) for each in check_shape(Document("f", value).root, shape)]


def test_kinds_of_shapes_that_are_rare() -> None:
    assert found({"Labels": {"a": "b"}, "Share": 1, "Ready": True, "When": "2026-01-01", "Blob": 3}) == []
    assert found({"Labels": {"a": "bbbb", "c": 1}}) == [("/Labels/a", "limit"), ("/Labels/c", "type")]
    assert found({"Labels": dict.fromkeys("abc", "x")}) == [("/Labels", "limit")]
    assert found({"Share": "1", "Ready": "yes", "When": [], "Labels": []}) == [
        ("/Share", "type"),
        ("/Ready", "type"),
        ("/When", "type"),
        ("/Labels", "type"),
    ]
    assert found({"Ready": 1, "Share": True}) == [("/Ready", "type"), ("/Share", "type")]
