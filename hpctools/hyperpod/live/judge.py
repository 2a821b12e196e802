"""Judging what AWS told: all rules together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.live.capacity_rules import CAPACITY_RULES
from hpctools.hyperpod.live.facts import AwsFacts
from hpctools.hyperpod.live.network_rules import NETWORK_RULES
from hpctools.hyperpod.live.role_rules import ROLE_RULES
from hpctools.hyperpod.live.storage_rules import STORAGE_RULES

Rule = Callable[[Files, AwsFacts], Iterator[Finding]]
RULES: tuple[Rule, ...] = (*NETWORK_RULES, *STORAGE_RULES, *CAPACITY_RULES, *ROLE_RULES)


def judge(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Yield everything in which the files and the account do not fit, and what could not be seen."""
    for each in facts.unseen:
        found = f"{each.what} could not be checked: {each.why}"
        if each.silent:
            yield files.request.warning("no-answer", each.remedy, found)
        else:
            yield files.request.warning("not-checked", each.remedy, found)
    for rule in RULES:
        yield from rule(files, facts)
