"""What the pyslurm client makes of pyslurm's failures; what it reads is the contract's, on real daemons."""

from __future__ import annotations

from datetime import date
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hpctools.errors import CommandError, NotAllowedError, ReleaseError, UnreachableError, UsageError
from hpctools.slurm.native import NativeClient


class PyslurmError(Exception):
    """As pyslurm.RPCError: a message and Slurm's number."""

    errno = 1900


def broken(words: str) -> NativeClient:
    """A client whose every question fails with Slurm's words."""

    def fail(*_: Any) -> Any:
        raise PyslurmError(words)

    module: Any = ModuleType("pyslurm")
    module.PyslurmError = PyslurmError
    module.Jobs = module.Partitions = SimpleNamespace(load=fail)
    module.Node = lambda **changes: changes
    module.Nodes = lambda names: SimpleNamespace(modify=fail)
    module.db = SimpleNamespace(Jobs=SimpleNamespace(load=fail), JobFilter=lambda **span: span)
    return NativeClient(module)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Unable to contact slurm controller (connect failure)", UnreachableError),
        ("Access/permission denied", NotAllowedError),
        ("Incompatible versions of client and server code", ReleaseError),
        ("Invalid node name specified", CommandError),
    ],
)
def test_slurms_words_tell_the_kind_of_failure(words: str, kind: type) -> None:
    client = broken(words)
    for ask in (client.jobs, client.partitions, lambda: client.update_nodes(["n1"], "drain", "x")):
        with pytest.raises(kind) as caught:
            ask()
        assert type(caught.value) is kind


def test_a_failure_of_slurmdbd_is_not_the_controllers() -> None:
    with pytest.raises(UnreachableError, match="slurmdbd does not answer") as caught:
        broken("Failed to get Jobs from slurmdbd").past_jobs(date(2026, 1, 1), date(2026, 1, 2))
    assert "sacctmgr" in caught.value.remedy


def test_mistakes_are_found_before_slurm_is_asked() -> None:
    with pytest.raises(UsageError):
        broken("asked").update_nodes(["n1"], "drain")
    broken("asked").update_nodes([], "drain", "nobody")
