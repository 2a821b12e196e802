"""Recovery policies: what a run is watched for, and what is done about what is found.

`parse` reads a policy, `watchers_of` makes of it what the coordinator calls.
"""

from __future__ import annotations

from hpctools.elastic.recovery.policy_text import PARTS, parse
from hpctools.elastic.recovery.settings import EXIT_CODES, EXIT_FULL_RESTARTS, EXIT_RETRIES, Recovery

__all__ = ["EXIT_CODES", "EXIT_FULL_RESTARTS", "EXIT_RETRIES", "PARTS", "Recovery", "parse"]
