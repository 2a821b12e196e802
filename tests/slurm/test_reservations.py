"""Reservations as slurmdbd remembers them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from hpctools.errors import BudgetError, UnreachableError
from hpctools.slurm.reservations import Reservation, parse, read_reservations

# What sacctmgr 22.05.8 said: r1 was given from nlp to cv after 14 seconds, r2 is for two people.
TOLD = """\
uni-gpu|r1|2026-11-23T08:56:59|2026-11-23T08:57:13|reserved-1|3
uni-gpu|r1|2026-11-23T08:57:13|2026-11-23T09:56:59|reserved-1|4
uni-gpu|r2|2026-11-23T09:56:59|2026-11-23T10:56:59|reserved-[1-2]|20,14,15
uni-gpu|notnlp|2026-11-23T15:57:04|2026-11-23T16:57:04|reserved-[1-2]|
uni-gpu|older|2026-11-23T15:57:04|2026-11-23T16:57:04|reserved-[1-2]|-6,
"""
ASSOCIATIONS = """\
uni-gpu|3|nlp
uni-gpu|4|cv
uni-gpu|6|nlp-lab-a
uni-gpu|14|nlp-lab-a
uni-gpu|15|nlp-lab-a
uni-gpu|20|cv-lab-a
other|3|dl
"""
BEGIN = 1795424219


def test_each_change_is_a_record_of_its_own_and_names_become_accounts() -> None:
    found = parse(TOLD, ASSOCIATIONS)
    assert found[0] == Reservation("uni-gpu", "notnlp", BEGIN + 25205, BEGIN + 28805, "reserved-[1-2]", ())
    assert [(each.name, each.start - BEGIN, each.end - BEGIN, each.accounts) for each in found[1:]] == [
        ("older", 25205, 28805, ()),
        ("r1", 0, 14, ("nlp",)),
        ("r1", 14, 3600, ("cv",)),
        ("r2", 3600, 7200, ("cv-lab-a", "nlp-lab-a")),
    ]


@pytest.mark.parametrize("line", ["uni-gpu|r1|2026-11-23T08:56:59|reserved-1|3", "a|b|Unknown|Unknown|n|3"])
def test_what_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(BudgetError, match="cannot be read"):
        parse(f"{line}\n", ASSOCIATIONS)


def program(folder: Path, text: str) -> Path:
    made = folder / "sacctmgr"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return made


def test_two_questions_are_asked_in_utc_and_one_where_there_is_no_reservation(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    say = f'echo "$TZ $*" >>{asked}; [ "$4" = reservation ] && printf "%s" "$TOLD" || printf "%s" "$IDS"'
    whole = program(tmp_path, f"TOLD='{TOLD}'; IDS='{ASSOCIATIONS}'\n{say}")
    assert read_reservations(date(2026, 11, 1), date(2026, 12, 1), sacctmgr=whole) == parse(
        TOLD, ASSOCIATIONS
    )
    assert asked.read_text().splitlines() == [
        "UTC --noheader --parsable2 show reservation start=2026-11-01T00:00:00 end=2026-12-01T00:00:00 "
        "format=Cluster,Name,Start,End,NodeNames,Associations",
        "UTC --noheader --parsable2 show association withdeleted format=Cluster,ID,Account",
    ]
    asked.unlink()
    nothing = program(tmp_path, f"TOLD=; IDS=\n{say}")
    assert read_reservations(date(2026, 11, 1), date(2026, 12, 1), sacctmgr=nothing) == ()
    assert len(asked.read_text().splitlines()) == 1


def test_slurmdbd_that_is_away_is_told(tmp_path: Path) -> None:
    away = program(tmp_path, "echo 'sacctmgr: error: Connection refused' >&2; exit 1")
    with pytest.raises(UnreachableError, match="slurmdbd does not answer"):
        read_reservations(date(2026, 11, 1), date(2026, 12, 1), sacctmgr=away)
