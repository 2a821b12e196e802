"""hp-submit's word before it submits: what it costs, and what is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from hpctools.errors import SubmitError, UsageError
from hpctools.submit.estimate import Estimate, Left, Rate, estimate, read_asked, read_left, read_rates
from hpctools.submit.intent import Intent
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.prices import Known, find_source, look

if TYPE_CHECKING:
    from hpctools.submit.policy_file import PolicyFile

POLICIES = ("ask", "tell", "off", "refuse")
_LATE = 3600
T = TypeVar("T")


def may_submit(intent: Intent, flags: frozenset[str], file: PolicyFile | None) -> bool:
    """Say what a submission costs and what is left; at a terminal, ask whether to go on.

    $HPCTOOLS_BUDGET, for sites to set: `ask` (the usual), `tell` (never asks), `off`, or `refuse`: also
    refuses what is more than is left, and everything while the API does not answer and nothing is cached.

    Args:
        file: the run's policy; None without one.

    Raises:
        SubmitError: the site refuses, or the policy has settings for a size that the run never has.
        UsageError: $HPCTOOLS_BUDGET is none of these, or the policy file and `--nodes` do not fit together.
    """
    policy = _policy(os.environ)
    source = find_source(os.environ)
    if policy == "off" or intent.effective("test-only") is not None:
        return True
    known = look(source, intent.effective("account")) if source else Known(None, None)
    rates, left = _read(read_rates, known.rates), _read(read_left, known.outlook)
    cost = _cost(intent, rates, file)
    said = _text(known, cost, left)
    if policy == "refuse":
        _refuse(said, cost, left, is_known=rates is not None)
    if not said:
        return True
    asks = "yes" not in flags and policy == "ask" and _is_a_person()
    if asks or intent.effective("quiet") is None:
        print(f"hp-submit: {said}", file=sys.stderr)
    return not asks or _agrees()


def _policy(environment: Mapping[str, str]) -> str:
    stated = environment.get("HPCTOOLS_BUDGET") or "ask"
    if stated not in POLICIES:
        raise UsageError(
            f"HPCTOOLS_BUDGET is {stated!r}, which is no policy",
            "it may be ask, tell, off or refuse; if you have not set it yourself, tell your administrator",
        )
    return stated


def _read(read: Callable[[Mapping[str, Any]], T], answer: Mapping[str, Any] | None) -> T | None:
    """What is answered; what answers otherwise than the API is not the API, and has said nothing."""
    try:
        return None if answer is None else read(answer)
    except (KeyError, TypeError, ValueError):
        return None


def _cost(
    intent: Intent, rates: tuple[list[Rate], dict[str, list[str]]] | None, file: PolicyFile | None
) -> Estimate | None:
    return None if rates is None else estimate(read_asked(intent, _sizes(intent, file)), *rates)


def _sizes(intent: Intent, file: PolicyFile | None) -> NodeSizes | None:
    """Those that the run's policy file and `--nodes` agree on; None: no elastic run."""
    if file is None:
        return intent.nodes
    from hpctools.submit.fitting import agreed_sizes  # what most submissions do not need

    return agreed_sizes(intent.nodes, file)


def _refuse(said: str, cost: Estimate | None, left: Left | None, *, is_known: bool) -> None:
    if not is_known:
        raise SubmitError(
            "the budget service does not answer, and this site submits nothing without it",
            "try again, or ask your administrator",
        )
    if left is None:
        return
    if left.amount <= 0 or (cost is not None and not cost.per_hour and cost.low > left.amount):
        raise SubmitError(
            f"{said}: it is more than is left",
            "ask the head of your department to approve more, or charge another account (--account)",
        )


def _text(known: Known, cost: Estimate | None, left: Left | None) -> str:
    """What is said; empty where nothing is known."""
    parts = [_of(cost)] if cost else []
    if left is not None:
        budget = f"{left.account}'s budget until {left.last}"
        parts.append(f"{left.amount:.2f} {left.currency} left of {budget}")
    late = f" (as of {known.age // 3600} h ago)" if parts and known.age > _LATE else ""
    return "; ".join(parts) + late


def _of(cost: Estimate) -> str:
    what = "costs about" if not cost.per_hour else "costs an hour about"
    amount = f"{cost.low} {cost.currency}"
    if cost.high != cost.low:
        amount = f"{cost.low} to {cost.high} {cost.currency}"
    return f"{what} {amount}" + ("" if cost.per_hour else " if it runs to its time limit")


def _is_a_person() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _agrees() -> bool:
    print("Submit? [Y/n] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D, or the terminal is gone: nobody has agreed
        print(file=sys.stderr)
        return False
    return answer.strip().lower() in ("", "y", "yes")
