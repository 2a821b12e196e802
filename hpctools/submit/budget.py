"""What is left of an account's budget, by the site's API where one is named; never waits for it."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote, urlsplit

from hpctools.errors import SubmitError
from hpctools.submit.estimate import read_left
from hpctools.submit.prices import read_token

SECONDS = 2.0
LARGEST = 1 << 20
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Budget:
    """An account's budget in its present period.

    Attributes:
        left: of all that may be spent, so of what was carried over and approved, too; in `currency`, negative
            when more was spent.
        last: the day until which it is for.
    """

    account: str
    left: Decimal
    currency: str
    last: str


def check_budget(budget: Budget) -> None:
    """Refuse a run for which there is no money.

    Raises:
        SubmitError: nothing is left of the account's budget.
    """
    if budget.left <= 0:
        raise SubmitError(
            f"account {budget.account} has {budget.left:.2f} {budget.currency} left of its budget until "
            f"{budget.last}",
            "charge another account (--account), or ask the head of its department",
        )


def ask_budget(account: str, environment: Mapping[str, str]) -> Budget | None:
    """Ask the API of $HPCTOOLS_API with the token in $HPCTOOLS_API_TOKEN_FILE (~/.hpctools/token).

    A token is sent over https only, or to this machine.

    Returns:
        None when no API is named, it does not answer within 2 seconds, or it has no budget for the account.
    """
    token = read_token(environment)
    try:
        address = urlsplit(environment.get("HPCTOOLS_API", ""))
    except ValueError:
        return None
    if not token or not address.hostname or (address.scheme != "https" and address.hostname not in _HERE):
        return None
    path = f"{address.path.rstrip('/')}/v1/accounts/{quote(account.lower(), safe='')}/outlook"
    answers: queue.Queue[bytes] = queue.Queue()
    host = address.netloc.rpartition("@")[2]
    # A daemon: an answer that comes too late is nobody's.
    threading.Thread(target=_ask, args=(address.scheme, host, path, token, answers), daemon=True).start()
    try:
        return _budget(account, answers.get(timeout=SECONDS))
    except queue.Empty:
        return None


def _ask(scheme: str, host: str, path: str, token: str, answers: queue.Queue[bytes]) -> None:
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(host, timeout=SECONDS)) as connection:
            # http.client follows no redirections, so the token goes nowhere else.
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            answers.put(response.read(LARGEST) if response.status == http.client.OK else b"")
    except (OSError, http.client.HTTPException, ValueError):
        answers.put(b"")


def _budget(account: str, answer: bytes) -> Budget | None:
    try:
        found = read_left({**json.loads(answer), "account": account})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Budget(account, found.amount, found.currency, found.last)
