"""Data that somebody has begun to give up, and that is still there."""

from __future__ import annotations

from typing import Any

import pytest

from hpctools.hyperpod.operations.aws import Aws
from hpctools.hyperpod.operations.life import Life
from hpctools.hyperpod.operations.stacks import Stacks
from hpctools.hyperpod.operations.watch import Watch
from hpctools.hyperpod.stack import infrastructure
from hpctools.hyperpod.stack.kept import given_up, kept_only
from tests.hyperpod.aws_rig import Server
from tests.hyperpod.operations.test_life import (
    KEPT,
    NOTHING,
    Interrupted,
    created,
    interrupted_at,
    requests_of,
    there,
)
from tests.hyperpod.stack.sites import example, smallest


def test_who_thinks_better_of_it_while_the_data_is_given_up_keeps_it(
    aws: Aws, server: Server, watch: Watch
) -> None:
    """Interrupted when the stack had agreed to its end, and before anything was deleted."""
    life = created(example("university"), aws, watch)
    asked = requests_of(lambda: life.delete(data=True))
    server.post("/moto-api/reset")
    created(example("university"), aws, watch)
    with interrupted_at(asked.index("execute_change_set") + 1), pytest.raises(Interrupted):
        life.delete(data=True)
    losses = life.losses()
    assert {"Database", "FileSystemHome", "FileSystemScratch"} <= {each.name for each in losses.holding}
    life.delete()
    assert there(aws) == KEPT
    life.delete(data=True)
    assert there(aws) == NOTHING


def test_a_deletion_of_data_that_failed_half_way_is_tried_again(watch: Watch) -> None:
    """CloudFormation changes no stack that is DELETE_FAILED, and deletes it."""
    asked: list[str] = []
    left = given_up(kept_only(infrastructure(smallest())) or {})

    class HalfGone(Stacks):
        def was_made(self, name: str) -> bool:
            return True

        def template(self, name: str) -> dict[str, Any]:
            return left

        def delete(self, name: str) -> None:
            asked.append(f"delete {name}")

        def bring(self, *arguments: Any) -> bool:
            raise AssertionError("a stack that is DELETE_FAILED cannot be changed")

    class OfHalfGone(Life):
        def stacks(self) -> dict[str, Stacks]:
            service = type("Nothing in it", (), {"region": "", "pages": staticmethod(lambda *_, **__: [])})
            return {"a": HalfGone(service, self.watch)}  # type: ignore[arg-type]

        @property
        def clusters(self) -> Any:
            return type("None there", (), {"delete": staticmethod(lambda name: False)})

    account = type("Account", (), {"service": staticmethod(lambda *_: None)})
    OfHalfGone(smallest(), account, watch).delete(data=True)  # type: ignore[arg-type]
    assert asked == ["delete a"]
