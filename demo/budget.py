"""The story's last part: what it cost, and who may see it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from demo.checklist import Checklist
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.daemons import API_ACCOUNT, api_command
from hpctools.sandbox.history import load

HEADS = ("nlp", "cv")


class BudgetDesk:
    """Asks the API as the heads of two departments; `open_books` comes first."""

    def __init__(self, sandbox: Sandbox, checklist: Checklist, console: Console) -> None:
        self.sandbox = sandbox
        self.see = checklist
        self.console = console
        self.base = f"http://127.0.0.1:{sandbox.running().ports['api']}"
        self.tokens: dict[str, str] = {}
        self.before: dict[str, dict[str, Any]] = {}
        self.month = datetime.now(timezone.utc).strftime("%Y-%m")

    def open_books(self) -> None:
        """Give the month a past, so that the page shows a month, and note what is spent before the story."""
        made_up = load(self.sandbox, int(time.time()))
        self.see.say(
            f"{made_up} made-up jobs of the past weeks are in slurmdbd, so that budgets show a month"
        )
        self.service("reconcile", "--month", self.month)
        self.tokens = {name: self.token(name) for name in HEADS}
        self.before = {name: self.statement(name) for name in HEADS}

    def reconcile(self) -> None:
        """Costs are reconciled with the bill; the table and the page's address are printed."""
        self.see.chapter("7  What it cost: the cloud bill joined to the jobs")
        first = self.service("reconcile", "--month", self.month)
        self.see.say(first.strip().splitlines()[-1] if first.strip() else "reconciled")
        now = {name: self.statement(name) for name in HEADS}
        for name in HEADS:
            spent = Decimal(now[name]["spent_on_jobs"]) - Decimal(self.before[name]["spent_on_jobs"])
            self.see.check(spent > 0, f"the story's jobs of {name} cost {spent:.4f} {now[name]['currency']}")
        self.service("reconcile", "--month", self.month)
        again = {name: self.statement(name) for name in HEADS}
        self.see.check(_money(now) == _money(again), "a second reconciliation changes nothing")
        self._doors()
        self.table(again)
        shown = again["nlp"]["account"]["title"] in self.page(self.tokens["nlp"])
        self.see.check(shown, f"the head of nlp signs in and sees the budget page: {self.base}/")
        self.see.say(f"token of the head of nlp: {self.tokens['nlp']}")

    def _doors(self) -> None:
        denied = self.code(f"/v1/accounts/cv/statement/{self.month}", self.tokens["nlp"])
        self.see.check(denied == 404, f"the head of nlp may not see cv's statement (HTTP {denied})")
        self.see.check(self.code("/v1/accounts", "") == 401, "without a token nothing is shown (HTTP 401)")

    def service(self, *words: str) -> str:
        """Run a command of the service, as its own account."""
        ports = self.sandbox.running().ports
        return self.sandbox.inside(*api_command(ports["moto"], *words), user=API_ACCOUNT, timeout=60).stdout

    def token(self, account: str) -> str:
        """A token for the head of a department."""
        return self.service("token", "create", "--name", f"{account}-head", "--account", account).split()[-1]

    def statement(self, account: str) -> dict[str, Any]:
        """An account's statement of this month."""
        return self.told(f"/v1/accounts/{account}/statement/{self.month}", account)

    def told(self, path: str, account: str) -> dict[str, Any]:
        """What the API answers to the head of an account."""
        with self._open(path, self.tokens[account]) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def code(self, path: str, token: str) -> int:
        """The HTTP status of a request."""
        try:
            with self._open(path, token) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def page(self, token: str) -> str:
        """The page that a browser shows after signing in with the form."""
        jar = urllib.request.HTTPCookieProcessor()
        form = urllib.parse.urlencode({"token": token}).encode()
        with urllib.request.build_opener(jar).open(f"{self.base}/login", form, timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    def _open(self, path: str, token: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.base + path, headers=headers)  # noqa: S310 - http on loopback
        return urllib.request.urlopen(request, timeout=30)  # noqa: S310

    def table(self, statements: dict[str, dict[str, Any]]) -> None:
        """The budget table."""
        table = Table(box=box.SIMPLE, title=f"Budgets, {self.month}")
        for column in ("account", "spent", "budget", "left", "state"):
            table.add_column(column, justify="left" if column in ("account", "state") else "right")
        for found in statements.values():
            for part in (found, *found["parts"]):
                table.add_row(*_row(part, found["currency"], top=part is found))
        self.console.print(table)


def _row(part: dict[str, Any], currency: str, *, top: bool) -> tuple[str, ...]:
    """A department, or below it a lab; money to the cent for people, exact in the API."""
    if not top:
        return (f"  {part['name']}", _cents(part["amount"], currency), "", "", "")
    return (
        part["account"]["name"],
        _cents(part["spent"], currency),
        _cents(part["budget"], currency),
        _cents(part["left"], currency),
        part["status"],
    )


def _cents(amount: str | None, currency: str) -> str:
    return f"{Decimal(amount):,.2f} {currency}" if amount is not None else ""


def _money(statements: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: found["spent"] for name, found in statements.items()}
