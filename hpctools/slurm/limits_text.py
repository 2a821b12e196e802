"""Values as sacctmgr and scontrol print those of limits: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

WALL = "wall"
"""The time of jobs, as if it were a TRES of which each has one: GrpWall is its GrpTRESMins."""


def tres(text: str) -> dict[str, int]:
    """`cpu=640(0),mem=N(0),gres/gpu=48` as numbers; what has no number has no limit."""
    found = re.findall(r"([^,=]+)=(\d+)(?:\([\d.]+\))?(?=,|$)", text)
    return {name: int(value) for name, value in found}


def amounts(text: str) -> dict[str, int]:
    """As `tres`, and memory in MiB, which sacctmgr prints with a unit (`mem=100G`, `mem=500M`)."""
    memory = re.search(r"(?:^|,)mem=(\d+)([MGTP]?)(?:\(\d+\))?(?=,|$)", text)
    return {
        **tres(text),
        **({"mem": int(memory[1]) * 1024 ** "MGTP".index(memory[2] or "M")} if memory else {}),
    }


def used(text: str) -> dict[str, tuple[int, float]]:
    """`cpu=N(328),gres/gpu=100(3)`: limits that there are, with what is used."""
    found = re.findall(r"([^,=]+)=(\d+)\(([\d.]+)\)", text)
    return {name: (int(limit), float(used)) for name, limit, used in found}


def used_together(record: Mapping[str, str]) -> dict[str, tuple[int, float]]:
    """The same of a whole record, with the time of jobs (GrpWall) among them."""
    return used(f"{record.get('GrpTRESMins', '')},{WALL}={record.get('GrpWall', '')}")


def count(text: str) -> int | None:
    """The number that stands first, as of `50(3)`; None: there is none."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None


def seconds(text: str) -> int:
    """`[days-]hours:minutes:seconds` in seconds."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not found:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def first_number(text: str, default: int) -> int:
    """Of `30 sec`."""
    found = re.match(r"\d+", text)
    return default if found is None else int(found[0])


def factor(text: str) -> float | None:
    """Of `2.000000`; None: there is none."""
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else None


def in_numbers(said: Mapping[str, str], together: Mapping[str, str]) -> dict[str, str]:
    """Of a QoS with the flag Relative, whose limits on TRES are percentages in slurmdbd.

    Args:
        said: what sacctmgr says of it, by column.
        together: what slurmctld says of it, which has them in numbers; those of a user or an account only
            where somebody has used the QoS.
    """
    other = {"MaxTRES": "PJ", "MaxTRESMins": "PJ", "MinTRES": "PJ"}
    names = {each: each.replace("PerNode", "PN") + other.get(each, "") for each in said if "TRES" in each}
    return {**said, **{each: together.get(name, "").rstrip("}") for each, name in names.items()}}


def usual_qos(allowed: str) -> str:
    """The QoS of a job where no default is stated: the only one, or `normal`; "": not known.

    As slurmctld's assoc_mgr_get_default_qos_info has it, but for a default that root alone has.
    """
    names = [each for each in allowed.split(",") if each]
    return names[0] if len(names) == 1 else next((each for each in names if each == "normal"), "")


def line_up(name: str, records: Mapping[str, Mapping[str, str]]) -> list[str]:
    """An account and those that it belongs to, the nearest first."""
    found: list[str] = []
    while name in records and name not in found:
        found.append(name)
        name = records[name].get("ParentAccount", "").partition("(")[0]
    return found
