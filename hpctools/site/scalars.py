"""The small values of a site file: names that are safe in Slurm's files and commands, times, money.

Every name ends up in slurm.conf and in sacctmgr's arguments, so each has a strict pattern; a newline, a comma
or an equals sign in a name is refused here and cannot reach Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, NoReturn

from pydantic import BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

# Slurm gives these words a meaning of their own where an account, a partition or a QoS is named.
RESERVED = frozenset({"root", "default", "all", "none"})

_DURATION = re.compile(r"(?:(\d{1,5})-)?(\d{1,5})(?::(\d{2})(?::(\d{2}))?)?", re.ASCII)
_MONEY = re.compile(r"\d{1,13}(?:\.\d{1,2})?", re.ASCII)


def refuse(expected: str) -> NoReturn:
    """Refuse a value during validation.

    Args:
        expected: what should have stood there; becomes the finding's `expected`.
    """
    raise PydanticCustomError("site", "{expected}", {"expected": expected})


def matching(
    pattern: str, expected: str, *, reserved: frozenset[str] = frozenset()
) -> Callable[[object], str]:
    """Make the check of a name, for `BeforeValidator`.

    Args:
        pattern: what all of it must match; `\\d` and the like mean ASCII.
        expected: what should stand there, for findings.
        reserved: lower-case words that it may not be, in whatever case.
    """
    compiled = re.compile(pattern, re.ASCII)

    def check(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            refuse(expected)
        if value.lower() in reserved:
            refuse(f"another name: {value!r} has a meaning of its own in Slurm")
        return value

    return check


_LOWER = "lower-case letters, digits, '-' and '_', starting with a letter, at most 40 characters"
_LOWER_OR_DIGIT = (
    "lower-case letters, digits, '.', '-' and '_', starting with a letter or digit, at most 40 characters"
)

ClusterName = Annotated[
    str, BeforeValidator(matching(r"[a-z][a-z0-9_-]{0,39}", f"a cluster name: {_LOWER}", reserved=RESERVED))
]
"""slurm.conf(5) ClusterName: at most 40 characters, lower case (slurmdbd folds it)."""

AccountName = Annotated[
    str,
    BeforeValidator(
        matching(r"[a-z0-9][a-z0-9_.-]{0,39}", f"an account name: {_LOWER_OR_DIGIT}", reserved=RESERVED)
    ),
]
"""A Slurm account; sacctmgr folds names to lower case, so only lower case is accepted."""

PartitionName = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}",
            "a partition name: letters, digits, '.', '-' and '_', at most 40 characters",
            reserved=RESERVED,
        )
    ),
]
"""A partition; Slurm keeps upper and lower case apart."""

TierName = Annotated[
    str,
    BeforeValidator(
        matching(r"[a-z0-9][a-z0-9_.-]{0,39}", f"a tier name: {_LOWER_OR_DIGIT}", reserved=RESERVED)
    ),
]
"""A tier is a Slurm QoS of the same name."""

TemplateName = Annotated[
    str, BeforeValidator(matching(r"[a-z][a-z0-9_-]{0,39}", f"a template name: {_LOWER}"))
]

UserName = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[a-z_][a-z0-9_.-]{0,31}",
            "a Unix account: lower-case letters, digits, '.', '-' and '_', at most 32 characters",
            reserved=frozenset({"root"}),
        )
    ),
]
"""A Unix account, as useradd(8) accepts it, with dots for directory services."""

GroupName = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[a-z](?:-?[a-z0-9]){0,39}",
            "a node group name: lower-case letters, digits and single '-', starting with a letter",
        )
    ),
]
"""The prefix of host names (`<group>-<n>`), and a HyperPod instance group."""

HostName = Annotated[
    str,
    BeforeValidator(
        matching(
            r"(?=.{1,253}\Z)[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62}(?:\.[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62})*",
            "a host name (RFC 1123)",
        )
    ),
]

SwitchName = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}",
            "a name of a switch or block: letters, digits, '.', '-' and '_', at most 63 characters",
        )
    ),
]
"""topology.conf(5): at most 64 characters."""

Feature = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z][A-Za-z0-9_.-]{0,63}", "a feature: letters, digits, '.', '-' and '_', from a letter on"
        )
    ),
]
"""A word that jobs may ask for (`--constraint`); nothing that `--constraint` reads as an operator."""

FilePath = Annotated[
    str,
    BeforeValidator(
        matching(r"(?=.{2,200}\Z)(?:/[A-Za-z0-9_+@-][A-Za-z0-9._+@-]*)+", "an absolute path without spaces")
    ),
]
"""A file or folder on the nodes or controllers; `..` and hidden names are refused."""

OverSubscribe = Annotated[
    str,
    BeforeValidator(
        matching(
            r"no|exclusive|(?:yes|force)(?::[1-9]\d{0,3})?",
            "no, exclusive, yes:N or force:N, with N jobs on each resource",
        )
    ),
]
"""slurm.conf(5) OverSubscribe, in lower case."""

GpuType = Annotated[
    str, BeforeValidator(matching(r"[a-z][a-z0-9_-]{0,31}", "a GPU type in lower case, for example a100"))
]

MigProfile = Annotated[
    str, BeforeValidator(matching(r"\d{1,2}g\.\d{1,3}gb", "a MIG profile, for example 3g.20gb"))
]

GresName = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[a-z][a-z0-9_]{0,31}",
            "a name of lower-case letters, digits and '_', starting with a letter",
            reserved=frozenset({"gpu", "mps", "shard", "nic", "craynetwork"}),
        )
    ),
]
"""A generic resource that Slurm only counts; those with plugins of their own are reserved (gres.conf(5))."""

InstanceType = Annotated[
    str,
    BeforeValidator(
        matching(
            r"(?:ml\.)?[a-z0-9-]{1,20}\.[a-z0-9-]{1,20}", "an instance type, for example ml.p4d.24xlarge"
        )
    ),
]

OLDEST_RELEASE = "22.05"
"""What `hpctools.slurm.versions` supports, which this package may not ask."""


def _check_release(value: object) -> str:
    release = matching(r"\d\d\.\d\d(?:\.\d{1,2})?", 'a Slurm release in quotes, for example "24.11"')(value)
    if release < OLDEST_RELEASE:
        refuse(f"{OLDEST_RELEASE} or later: hpctools supports no older Slurm")
    return release


Release = Annotated[str, BeforeValidator(_check_release)]

Currency = Annotated[
    str, BeforeValidator(matching(r"[A-Z]{3}", "a currency code (ISO 4217), for example USD"))
]

TagKey = Annotated[
    str,
    BeforeValidator(
        matching(
            r"(?!aws:)[A-Za-z0-9_.:/=+@-]{1,128}",
            "a tag key: letters, digits and _.:/=+@-, at most 128 characters, not starting with aws:",
        )
    ),
]

DatabaseName = Annotated[
    str, BeforeValidator(matching(r"[A-Za-z][A-Za-z0-9_]{0,63}", "a database or database user name"))
]

Text = Annotated[
    str,
    BeforeValidator(
        matching(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "one line of text, at most 200 characters")
    ),
]
"""A description for people; Slurm never sees it."""


def parse_duration(value: object) -> int:
    """Parse a Slurm time that names its hours: `d-hh[:mm[:ss]]` or `hh:mm:ss`.

    Slurm's shorter forms (`90` minutes, `90:00` minutes and seconds) are refused: readers take them for
    hours.

    Returns:
        Seconds.
    """
    expected = "a time such as 2-00:00:00 (days-hours:minutes:seconds) or 12:30:00"
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        refuse(expected)
    days, hours, minutes, seconds = match.groups()
    if days is None and seconds is None:
        refuse(expected)
    if int(minutes or 0) > 59 or int(seconds or 0) > 59 or (days is not None and int(hours) > 23):
        refuse(expected)
    return ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)


def spell_duration(seconds: int) -> str:
    """Spell seconds as Slurm does: `[d-]hh:mm:ss`."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{second:02}" if days else f"{hour:02}:{minute:02}:{second:02}"


def _reparse_duration(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        refuse("a time such as 2-00:00:00, not a bare number (minutes or seconds?)")
    return parse_duration(value)


Duration = Annotated[
    int,
    BeforeValidator(_reparse_duration),
    Field(le=24_855 * 24 * 3600),  # Slurm counts seconds in 31 bits: 49711 days are 17 hours to it
    PlainSerializer(spell_duration, return_type=str),
]
"""Seconds; written as Slurm's `d-hh:mm:ss`."""


TimeLimit = Annotated[Duration, Field(ge=1)]
"""Seconds; a limit of 0 would let no job run."""


def _parse_money(value: object) -> Decimal:
    if not isinstance(value, str) or not _MONEY.fullmatch(value):
        refuse('an amount as text in quotes with at most two decimals, for example "25000.00"')
    return Decimal(value)


Money = Annotated[Decimal, BeforeValidator(_parse_money), PlainSerializer(str, return_type=str)]
"""An exact amount; written in quotes, because a YAML number would become a binary fraction."""
