"""The fake keeps the Protocols, as the real clients do."""

from __future__ import annotations

from datetime import date

import pytest

from hpctools.errors import CommandError, UnreachableError, UsageError
from hpctools.slurm.cli import CommandClient
from hpctools.slurm.client import RunClient, SlurmAdministration
from hpctools.slurm.native import NativeClient
from hpctools.slurm.types import Node, PastJob
from hpctools.testing.slurm import FakeSlurm

DAY = 1_795_219_200  # 2026-11-21, 0:00 UTC


def methods(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))}


def test_all_of_the_protocol_is_there_and_no_more_than_eight_methods() -> None:
    wanted = {name for base in SlurmAdministration.__mro__ for name in methods(base)}
    assert len(wanted) == 8
    for kind in (CommandClient, NativeClient, FakeSlurm):
        assert wanted | methods(RunClient) <= methods(kind)


def test_nodes_change_as_the_contract_says() -> None:
    slurm: SlurmAdministration = FakeSlurm(machines={"n1": Node("n1", "IDLE"), "n2": Node("n2", "DOWN")})
    slurm.update_nodes(["n1"], "drain", "fan")
    slurm.update_nodes(["n2"], "resume")
    assert slurm.nodes() == [Node("n1", "IDLE", ("DRAIN",), "fan"), Node("n2", "IDLE")]
    slurm.update_nodes(["n1"], "undrain")
    assert slurm.nodes()[0] == Node("n1", "IDLE")
    with pytest.raises(CommandError, match="Invalid node name"):
        slurm.update_nodes(["n9"], "drain", "x")
    with pytest.raises(UsageError):
        slurm.update_nodes(["n1"], "drain")


def test_past_jobs_are_those_of_the_days() -> None:
    def job(number: int, start: int, end: int | None, user: str = "nlp1") -> PastJob:
        return PastJob("c", number, number, user, "nlp", "p", "q", "COMPLETED", start, start, end)

    before, over, now = job(3, DAY - 90, DAY - 60), job(2, DAY - 90, DAY + 60), job(1, DAY + 90, None, "cv1")
    slurm = FakeSlurm(past=(before, over, now, job(4, DAY + 90_000, None)))
    assert slurm.past_jobs(date(2026, 11, 21), date(2026, 11, 22)) == [now, over]
    assert slurm.past_jobs(date(2026, 11, 21), date(2026, 11, 22), users=["cv1"]) == [now]


def test_a_silent_cluster_answers_nothing() -> None:
    slurm = FakeSlurm(failure=UnreachableError("away"))
    for ask in (slurm.nodes, slurm.config, slurm.jobs, slurm.partitions):
        with pytest.raises(UnreachableError):
            ask()
