"""Reservations for accounts that go: Slurm deletes them without a word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpctools.conf.plan import make_plan
from hpctools.conf.plan.reservations import read_reservations
from tests.conf.plan.stage import FOLDER, ROOT, bundle, live

COURSE = "ReservationName=course StartTime=2026-11-27T09:00:00 Nodes=reserved-1 Users=(null) Groups=(null)"
OTHER = "ReservationName=other Nodes=reserved-2 Users=(null) Groups=(null) Accounts=cv Licenses=(null)"


@pytest.mark.parametrize(
    ("accounts", "remedy"),
    [
        ("new", "accounts=OTHERS"),
        ("-new", "accounts=OTHERS"),
        ("cv,new,dl", "accounts=cv,dl"),
        ("-new,-cv", "accounts=-cv"),
    ],
)
def test_a_plan_tells_them_with_what_to_do(accounts: str, remedy: str) -> None:
    more = bundle(("      - name: cv-lab-a\n", "      - name: new\n      - name: cv-lab-a\n"))
    text = f"{COURSE} Accounts={accounts} Licenses=(null) Comment=Accounts=cv\n{OTHER}\n"
    there = replace(live(more), reservations=read_reservations(text))
    (told,) = make_plan(bundle(), there, folder=FOLDER, prune=True).warnings
    assert told.startswith("reservation course names new, which goes: ")
    assert f"scontrol update reservationname=course {remedy})" in told
    assert make_plan(more, there, folder=FOLDER, prune=True).warnings == ()


@pytest.mark.parametrize("release", ["22.05.8", "24.11.5", "26.05.5"])
def test_what_slurm_says_of_them(release: str) -> None:
    recorded = ROOT / "tests/recorded" / release / "scontrol-show-reservation.txt"
    assert read_reservations(recorded.read_text()) == {"service": frozenset()}
    assert read_reservations("No reservations in the system\n") == {}
