"""Limits that a budget has taken, and what they were before: a mark in the account's description.

slurmdbd keeps it beside the limit and changes both in one transaction, so that a limit and its mark are there
together or not at all, whoever looks and whatever became of the service that set them. sacctmgr writes
descriptions in small letters; nothing in a mark depends on more.

    Natural Language Processing [hpctools-budget uni-gpu grpsubmitjobs=20]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

KEYS = ("GrpSubmitJobs", "QOS", "DefaultQOS")
"""The limits that budgets take."""

_MARK = re.compile(r"\s*\[hpctools-budget ([^\s\[\]]+)([^\[\]]*)\]")
_VALUE = re.compile(r"[a-z0-9_.,+-]*")


def held(description: str, cluster: str | None) -> dict[str, str]:
    """What the limits that a budget has taken were before, by sacctmgr's word; "" for not set.

    Args:
        cluster: whose limits; any cluster's when None.
    """
    known = {key.lower(): key for key in KEYS}
    found: dict[str, str] = {}
    for name, values in _MARK.findall(description.lower()):
        if cluster is not None and name != cluster.lower():
            continue
        for word in values.split():
            key, _, value = word.partition("=")
            if key in known and _VALUE.fullmatch(value):
                found[known[key]] = value
    return found


def with_mark(description: str, cluster: str, before: Mapping[str, str]) -> str:
    """A description with another mark for one cluster; those of others stay.

    Args:
        before: what the limits were, canonical; none to take the mark away.
    """
    rest = _MARK.sub(lambda mark: "" if mark[1].lower() == cluster.lower() else mark[0], description).strip()
    if not before:
        return rest
    words = " ".join(f"{key.lower()}={value}" for key, value in sorted(before.items()))
    return f"{rest} [hpctools-budget {cluster.lower()} {words}]".strip()


def descriptions(text: str) -> Iterable[tuple[str, str]]:
    """Account and description of each line of `sacctmgr -nP show accounts format=Account,Descr`.

    A description may hold anything but a line feed.
    """
    for line in text.split("\n"):
        account, bar, description = line.partition("|")
        if bar:
            yield account, description
