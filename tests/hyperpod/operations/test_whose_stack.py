"""A stack of somebody else is never changed or deleted, whatever name a site file has for its own."""

from __future__ import annotations

import pytest

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations.aws import Aws
from hpctools.hyperpod.operations.life import Life
from hpctools.hyperpod.operations.stacks import Stacks, Wanted
from hpctools.hyperpod.operations.watch import Watch
from hpctools.site import Site, loads
from tests.hyperpod.operations.test_life import created, preparing, there
from tests.hyperpod.stack.sites import SMALLEST


def of_stack(cluster: str) -> Site:
    network = "network: {internet: none, endpoints: [s3]}"
    stated = SMALLEST.replace("aws: {}", f"aws: {{stack: shared, {network}}}")
    return loads(stated.replace("name: tiny", f"name: {cluster}"))


def test_a_stack_of_another_cluster_is_left_alone(aws: Aws, watch: Watch) -> None:
    """A site file that was copied, with the name of its stack."""
    created(of_stack("tiny"), aws, watch)
    before = there(aws)
    other = Life(of_stack("other"), aws, watch)
    deeds = (lambda: other.create(preparing(other)), other.losses, lambda: other.delete(data=True))
    for deed in deeds:
        with pytest.raises(
            HpctoolsError, match=r"stack shared is of the cluster tiny, which is there; state another name"
        ):
            deed()
    assert there(aws) == before
    # What is left of a cluster that is gone may be taken over by one of another name.
    Life(of_stack("tiny"), aws, watch).delete()
    other.create(preparing(other))
    assert there(aws)["clusters"] == ["other"]


def test_a_stack_that_hpctools_did_not_make_is_left_alone(aws: Aws, watch: Watch) -> None:
    topic = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
    Stacks(aws.service("cloudformation"), watch).bring(Wanted("shared", topic))
    life = Life(of_stack("tiny"), aws, watch)
    for deed in (lambda: life.create(preparing(life)), life.losses, life.delete):
        with pytest.raises(HpctoolsError, match="stack shared is of something that hpctools did not make"):
            deed()
    assert len(aws.service("sns").ask("list_topics")["Topics"]) == 1
