"""`hpctools-api token`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

import click

from api.auth.principal import Scope
from api.commands.store import open_store
from api.services import tokens
from api.services.site_file import SiteFile
from api.settings import read_settings
from hpctools.budget.month import moment
from hpctools.errors import UsageError


@click.group()
def token() -> None:
    """Make, list and revoke access tokens."""


@token.command()
@click.option("--name", required=True, help="Whose it is; unique.")
@click.option("--account", help="A department or lab: the token opens it and what is below.")
@click.option("--user", help="A login name: it is this person's own, for hp-login and hp-submit as well.")
@click.option("--admin", is_flag=True, help="The token opens everything.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "write", "enforce", "login"]),
    help="What it may do: read (default), write (change budgets), enforce (act on the cluster), "
    "login (count sessions: for login nodes).",
)
@click.option("--expires", help="YYYY-MM-DD (UTC): it ends when this day begins.")
@click.option("--out", type=click.Path(path_type=Path), help="Write it to this new file, mode 0600.")
def create(
    name: str,
    account: str | None,
    user: str | None,
    admin: bool,
    scopes: tuple[Scope, ...],
    expires: str | None,
    out: Path | None,
) -> None:
    """Make a token and print it; it cannot be shown again.

    \b
    Examples:
      hpctools-api token create --name login-nodes --account root --scope login --out login-token
      hpctools-api token create --name laptop --account nlp-lab-a --user anna --out anna-token
    """
    if admin == (account is not None):
        raise UsageError(
            "a token is for one account or for an administrator", "give --account NAME or --admin"
        )
    if admin and scopes:
        raise UsageError("an administrator has every scope", "leave --scope out, or give --account NAME")
    settings = read_settings()
    if account is not None:
        _check_account(SiteFile(settings.site, settings.metric), account)
    now = int(time.time())
    wanted = (name, account, now, _expiry(expires, now), scopes or ("read",), user)
    with open_store(settings) as engine:
        if out is None:
            click.echo(tokens.create(engine, *wanted))
        else:
            with _new_file(out) as file:
                file.write(tokens.create(engine, *wanted) + "\n")


@token.command("list")
def list_tokens() -> None:
    """List tokens, never their secrets.

    \b
    Example:  hpctools-api token list
    """
    with open_store(read_settings()) as engine:
        known = tokens.listed(engine)
    for info in known:
        ends = (
            "revoked"
            if info.revoked_at
            else f"until {moment(info.expires_at):%F}"
            if info.expires_at
            else "valid"
        )
        whose = info.account or "administrator"
        click.echo(f"{info.name}\t{whose}\t{','.join(info.scopes)}\t{moment(info.created_at):%F}\t{ends}")


@token.command()
@click.argument("name")
def revoke(name: str) -> None:
    """End a token at once.

    \b
    Example:  hpctools-api token revoke login-nodes
    """
    with open_store(read_settings()) as engine:
        tokens.revoke(engine, name, int(time.time()))
    click.echo(f"{name} is revoked")


def _check_account(site_file: SiteFile, account: str) -> None:
    known = site_file.current().by_name
    if account not in known:
        raise UsageError(f"the site has no account {account!r}", f"it has: {', '.join(known)}")


def _expiry(text: str | None, now: int) -> int | None:
    if text is None:
        return None
    try:
        end = int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc).timestamp())
    except ValueError:
        raise UsageError(f"{text!r} is not a day", "expected YYYY-MM-DD, for example 2027-09-30") from None
    if end <= now:
        raise UsageError(f"{text} is not in the future", "give the day on which the token ends")
    return end


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """A file that was not there, mode 0600: made before there is a token, removed when there will be none."""
    try:
        path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise UsageError(
            f"cannot write the token to {path}: {error.strerror}", "name a new file in a folder of yours"
        ) from None
    try:
        with path.open("w") as file:
            yield file
    except BaseException:
        path.unlink()
        raise
