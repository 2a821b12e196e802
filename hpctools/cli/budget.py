"""`hpctools budget`: what departments may spend, spent, and what happens then; over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any
from urllib.parse import quote

import click

from hpctools.budget.allowance import Version, in_effect
from hpctools.budget.service import MissingError, Service, find_service
from hpctools.cli import budget_text
from hpctools.cli.budget_enforce import enforce
from hpctools.cli.budget_jobs import job, jobs, runs
from hpctools.cli.output import show
from hpctools.errors import UsageError

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print what the service answered.")
_WHY = click.option("--why", required=True, help="For those who read the audit trail.")


@click.group()
def budget() -> None:
    """What departments and labs may spend, spent, and what happens then.

    The service is $HPCTOOLS_API; the token is in $HPCTOOLS_API_TOKEN_FILE (~/.hpctools/token, mode 0600) or
    in $HPCTOOLS_API_TOKEN.
    """


for command in (enforce, jobs, runs, job):
    budget.add_command(command)


def service() -> Service:
    """The service that the environment names."""
    return find_service(os.environ)


def path(account: str, *rest: str) -> str:
    """The path of something of an account's."""
    return "/".join(("/v1/accounts", quote(account, safe=""), *rest))


def told(answer: Any, as_json: bool, text: str) -> None:
    """Print an answer for programs or for people."""
    show({"answer": answer} if as_json and isinstance(answer, list) else answer if as_json else text)


@budget.command()
@click.argument("account", required=False)
@_AS_JSON
def status(account: str | None, as_json: bool) -> None:
    """Where accounts are in their budgets: all that you see, or one. Ends with 1 when one is overspent.

    \b
    Example:  hpctools budget status nlp
    """
    here = service()
    found = [here.ask("GET", path(account, "outlook"))] if account else list(_outlooks(here))
    told({"accounts": found}, as_json, budget_text.outlooks(found))
    if any(each["left"].startswith("-") for each in found):
        raise SystemExit(1)


@budget.command("show")
@click.argument("account")
@_AS_JSON
def show_(account: str, as_json: bool) -> None:
    """All budgets that an account had and has: since when, by whom and why.

    \b
    Example:  hpctools budget show nlp
    """
    answer = service().ask("GET", path(account, "budget"))
    told(answer, as_json, budget_text.versions(answer))


@budget.command("set")
@click.argument("account")
@click.option("--amount", help="For one period, such as 25000.00.")
@click.option("--period", type=click.Choice(["monthly", "quarterly", "yearly", "terms", "once"]))
@click.option("--starts", multiple=True, help="MM-DD on which periods begin; several for terms.")
@click.option("--first", help="YYYY-MM-DD, the first day of `once`.")
@click.option("--last", help="YYYY-MM-DD, the last day of `once`.")
@click.option("--carry-over", type=click.Choice(["none", "surplus", "balance"]))
@click.option("--carry-at-most", help="The most that is carried over.")
@click.option("--over-commit/--no-over-commit", default=None, help="Parts may add up to more.")
@click.option("--alert-at", help="Percentages, such as 50,75,90.")
@click.option("--alert-on-forecast", help="Percentages of what is expected.")
@click.option("--enforce", "policy", type=click.Choice(["off", "warn", "block", "hold", "lower-tier"]))
@click.option("--tier", help="The QoS of lower-tier.")
@click.option("--effective", help="YYYY-MM-DD: it counts for the whole period of this day.")
@_WHY
@_AS_JSON
def set_(account: str, effective: str | None, why: str, as_json: bool, **options: Any) -> None:
    """Change an account's budget; what is not named stays as it is.

    \b
    Example:  hpctools budget set nlp --amount 25000.00 --why 'new grant'
    """
    here = service()
    words, tag = _present(here, account, effective)
    words = {**_kept(words, options), **_stated(options)}
    if options["policy"] is not None or options["tier"] is not None:
        words["enforce"] = _enforced(words.get("enforce", {}), options["policy"], options["tier"])
    if "amount" not in words:
        raise UsageError(f"{account} has no budget yet", "give --amount")
    body = _body(budget=words, effective=effective, why=why)
    answer = here.ask("PUT", path(account, "budget"), body, if_match=tag)
    told(answer, as_json, budget_text.version(account, answer))


@budget.command()
@click.argument("account")
@click.argument("parts", nargs=-1, required=True, metavar="PART=AMOUNT...")
@_WHY
@_AS_JSON
def split(account: str, parts: tuple[str, ...], why: str, as_json: bool) -> None:
    """Give parts of an account's budget to those directly below it, all at once.

    \b
    Example:  hpctools budget split nlp nlp-lab-a=15000.00 nlp-lab-b=10000.00 --why 'this year'
    """
    amounts: dict[str, str] = {}
    for part in parts:
        name, equals, amount = part.partition("=")
        if not (name and equals and amount) or name in amounts:
            raise UsageError(f"{part!r} is no part", "expected each once, for example nlp-lab-a=15000.00")
        amounts[name] = amount
    here = service()
    _, tag = here.look(path(account, "split"))
    answer = here.ask("PUT", path(account, "split"), {"parts": amounts, "why": why}, if_match=tag)
    if len(answer) != len(amounts):
        raise here.foreign(path(account, "split"), f"with {len(answer)} budgets for {len(amounts)} parts")
    lines = [budget_text.version(name, each) for name, each in zip(amounts, answer, strict=True)]
    told(answer, as_json, "".join(lines))


@budget.command()
@click.argument("account")
@click.option("--amount", required=True, help="Beyond the budget.")
@click.option("--until", required=True, help="YYYY-MM-DD (UTC): it ends when this day begins.")
@_WHY
@_AS_JSON
def approve(account: str, amount: str, until: str, why: str, as_json: bool) -> None:
    """Approve that an account spends more than its budget, for a time.

    \b
    Example:  hpctools budget approve nlp --amount 500.00 --until 2026-12-31 --why 'paper deadline'
    """
    body = {"amount": amount, "until": until, "why": why}
    answer = service().ask("POST", path(account, "approvals"), body)
    told(answer, as_json, f"{account} may spend {answer['amount']} more until {answer['until']}\n")


@budget.command()
@click.argument("account", required=False)
@_AS_JSON
def alerts(account: str | None, as_json: bool) -> None:
    """Alerts of the accounts that you may see, the newest first.

    \b
    Example:  hpctools budget alerts nlp
    """
    query = f"?account={quote(account, safe='')}" if account else ""
    answer = service().ask("GET", f"/v1/alerts{query}")
    told(answer, as_json, budget_text.alerts(answer["alerts"]))


@budget.command()
@click.argument("account")
@_AS_JSON
def forecast(account: str, as_json: bool) -> None:
    """Where an account's present period ends, as a range.

    \b
    Example:  hpctools budget forecast nlp
    """
    answer = service().ask("GET", path(account, "forecast"))
    told(answer, as_json, budget_text.forecast(account, answer))


def _outlooks(here: Service) -> Iterator[Any]:
    """Where all accounts are that have a budget today: a grant may be over, or not have begun."""
    for account in here.ask("GET", "/v1/accounts")["accounts"]:
        with suppress(MissingError):
            yield here.ask("GET", path(account["name"], "outlook"))


def _present(here: Service, account: str, effective: str | None) -> tuple[dict[str, Any], str]:
    """The budget of the period that a day (today when None) lies in, and the tag of the state of all.

    One of a period to come is none of it: what it has otherwise would count from now on.
    """
    from hpctools.budget.spec_words import parse_spec  # slow to import: the site file's models

    answer, tag = here.look(path(account, "budget"))
    told = ((_day(each["effective"]), each["budget"]) for each in answer["versions"])
    known = [_Worded(day, parse_spec(words), words) for day, words in told]
    found = in_effect(known, _day(effective or _last_day(here, account)))
    return (dict(found.words) if found else {}), tag


@dataclass(frozen=True)
class _Worded(Version):
    """A budget as the service told it."""

    words: dict[str, Any]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no day", "expected for example 2026-11-30") from None


def _last_day(here: Service, account: str) -> str:
    """Of the account's present period; today where it has no budget."""
    try:
        return str(here.ask("GET", path(account, "outlook"))["last"])
    except MissingError:
        return datetime.now(timezone.utc).date().isoformat()


def _kept(words: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """An account's last budget without what only goes with something that is otherwise from now on."""
    gone: tuple[str, ...] = ()
    if options["period"] not in (None, words.get("period")):
        gone += ("starts", "first", "last")
    if options["carry_over"] == "none":
        gone += ("carry_at_most",)
    return {word: value for word, value in words.items() if word not in gone}


def _enforced(present: dict[str, Any], policy: str | None, tier: str | None) -> dict[str, Any]:
    """The words of `enforce`: the tier that there is stays with the policy that needs one."""
    chosen = policy or present.get("policy", "off")
    kept = present.get("tier") if chosen == "lower-tier" else None
    return {**present, "policy": chosen, "tier": tier or kept}


def _stated(options: dict[str, Any]) -> dict[str, Any]:
    """The words of the options that were given."""
    plain = ("amount", "period", "first", "last", "carry_over", "carry_at_most", "over_commit")
    words = {name: options[name] for name in plain if options[name] is not None}
    if options["starts"]:
        words["starts"] = list(options["starts"])
    for name in ("alert_at", "alert_on_forecast"):
        if options[name] is not None:
            words[name] = _percentages(options[name])
    return words


def _percentages(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise UsageError(f"{text!r} are no percentages", "expected for example 50,75,90") from None


def _body(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
