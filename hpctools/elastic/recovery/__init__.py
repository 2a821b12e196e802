"""Recovery policies: what a run is watched for, and what is done about what is found.

`parse` reads a policy, `watchers_of` makes of it what the coordinator calls; agents have a
`listening.Listener` for log rules.
"""

from __future__ import annotations

from hpctools.elastic.recovery.blaming import without_a_rung
from hpctools.elastic.recovery.never import never_find
from hpctools.elastic.recovery.policy_text import PARTS, parse
from hpctools.elastic.recovery.settings import (
    EXIT_CODES,
    EXIT_FULL_RESTARTS,
    EXIT_GOES_ON,
    EXIT_RETRIES,
    Recovery,
)
from hpctools.elastic.recovery.wiring import log_rules_of, watchers_of

__all__ = [
    "EXIT_CODES",
    "EXIT_FULL_RESTARTS",
    "EXIT_GOES_ON",
    "EXIT_RETRIES",
    "PARTS",
    "Recovery",
    "log_rules_of",
    "never_find",
    "parse",
    "watchers_of",
    "without_a_rung",
]
