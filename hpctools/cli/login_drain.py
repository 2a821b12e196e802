"""`hpctools login drain | undrain`: a node takes no new sessions, its people are told, and waited for."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from hpctools.budget.service import Service, find_service
from hpctools.cli.login_sessions import all_sessions
from hpctools.cli.output import show
from hpctools.errors import HpctoolsError, UnreachableError, UsageError
from hpctools.login.draining import Course, Shown, follow
from hpctools.login.durations import at_clock

SOCKET = Path("/run/hpctools-login/agent.sock")
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_LONGEST, _CLOSING = 500, 100
"""Characters that the service takes, and how many of them what is said of a deadline has at most."""
_TIME = re.compile(r"(\d{1,6})([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str) -> float:
    """Seconds of a time such as 90, 30m, 2h, 1d.

    Raises:
        UsageError: it is none.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no time", "expected such as 90s, 30m, 2h or 1d")
    return float(int(found[1]) * _UNITS[found[2]])


def ask_agent(path: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the agent of this very node.

    Raises:
        UnreachableError: none answers.
        HpctoolsError: it refuses, or its socket is not for this account.
    """
    from hpctools.login.agent.listening import ask_door

    try:
        found = dict(ask_door(path, question))
    except PermissionError:
        raise HpctoolsError(f"{path} is root's", "ask as root") from None
    except (OSError, ValueError) as error:
        raise UnreachableError(
            f"no agent answers at {path}: {error}",
            "run this on a login node, and see that hp-login-agent runs",
        ) from None
    if "error" in found:
        raise HpctoolsError(f"the agent: {found['error']}", "ask as root")
    return found


@click.command()
@click.argument("node", required=False)
@click.option("--here", is_flag=True, help="This very node, by its own agent: needs no service, but root.")
@click.option("--message", default="", help="Why; told to the people who are there.")
@click.option("--wait", is_flag=True, help="Wait until nobody is left there.")
@click.option("--deadline", help="With --wait: end the sessions that are left then (90s, 30m, 2h, 1d).")
@click.option("--timeout", help="With --wait: stop waiting then; ends with 1 when somebody is left.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def drain(
    node: str | None,
    here: bool,
    message: str,
    wait: bool,
    deadline: str | None,
    timeout: str | None,
    as_json: bool,
) -> None:
    """Have a login node take no new sessions, tell those who are there, and wait until they have left.

    Sessions that are there stay; jobs are not touched. With --deadline people are reminded, and what is left
    is ended. Ctrl-C, or closing the terminal, ends the waiting and the deadline: the node stays drained.

    \b
    Examples:
      hpctools login drain login-1 --message "new kernel on Friday"
      hpctools login drain login-1 --wait --deadline 2h --message "new kernel"
      hpctools login drain --here --message "the disk fails"
    """
    if (deadline or timeout) and not wait:
        raise UsageError("--deadline and --timeout are for --wait", "add --wait")
    if here:
        _check_not_named(node)
        _drain_here(_checked(message, deadline), wait, as_json)
        return
    name = _named(node)
    service = find_service(os.environ)
    course = _course(_checked(message, deadline), deadline, timeout)
    words = _Words(service, name)
    if not wait:
        _drain_now(words, name, message)
        show(
            {"node": name, "draining": True, "why": message} if as_json else f"{name} takes no new sessions\n"
        )
        return
    tell = _to_people if not as_json else _in_words
    with _endings_are_told(), _plain_words_at_last(words, course):
        _drain_now(words, name, course.words(None))
        report = follow(words, course, tell, time.monotonic, time.sleep)
    show(report.as_json() | {"node": name} if as_json else f"{name}: {report}\n")
    if not report.is_empty:
        raise SystemExit(1)


@click.command()
@click.argument("node", required=False)
@click.option("--here", is_flag=True, help="This very node, by its own agent; what the service says stays.")
def undrain(node: str | None, here: bool) -> None:
    """Have a login node take sessions again.

    \b
    Examples:
      hpctools login undrain login-1
      hpctools login undrain --here
    """
    if here:
        _check_not_named(node)
        found = ask_agent(SOCKET, {"ask": "drain", "draining": False})
        still = " but by the service's word it takes none" if found["draining"] else ""
        show(f"{found['node']} is no longer drained here{still}\n")
        return
    name, service = _named(node), find_service(os.environ)
    if not put_drain(service, name, draining=False, why=""):
        _tell_unknown(name)
    nodes = service.ask("GET", "/v1/login/nodes")["nodes"]
    if any(each["name"] == name and each["state"] == "draining" for each in nodes):
        own_word = "there is a word of its own, to be taken back on it: hpctools login undrain --here"
        show(f"{name} is no longer drained by the service, and still drained: {own_word}\n")
        return
    show(f"{name} takes sessions again\n")


def _course(message: str, deadline: str | None, timeout: str | None) -> Course:
    """What is intended, from now on."""
    left = seconds_of(deadline) if deadline else None
    now = time.time()
    clock = at_clock(now + left, now) if left is not None else ""
    return Course(message, left, seconds_of(timeout) if timeout else None, clock)


def _checked(message: str, deadline: str | None) -> str:
    """The message, when people are told all of it and what is added to it.

    Raises:
        UsageError: it is too long.
    """
    most = _LONGEST - (_CLOSING if deadline else 0)
    length = len(_clean(message))
    if length > most:
        beside = ", as the deadline is told with it" if deadline else ""
        raise UsageError(
            f"the message has {length} characters, and people can be told {most}{beside}", "shorten --message"
        )
    return message


def _drain_now(words: _Words, name: str, why: str) -> None:
    words.drain(why)
    if not words.known:
        _tell_unknown(name)


def _tell_unknown(name: str) -> None:
    """It may come yet; but mostly it is called otherwise."""
    click.echo(
        f"hpctools: warning: no node called {name} has told of itself; see `hpctools login nodes` for names",
        err=True,
    )


def put_drain(service: Service, node: str, *, draining: bool, why: str) -> bool:
    """Tell the service whether a node takes sessions; returns whether it has ever heard of the node."""
    clean = _clean(why)[:_LONGEST]
    path = f"/v1/login/nodes/{quote(node, safe='')}/drain"
    return bool(service.ask("PUT", path, {"draining": draining, "why": clean}).get("known", True))


def _clean(why: str) -> str:
    return "".join(char for char in why if char.isprintable())


@contextlib.contextmanager
def _endings_are_told() -> Iterator[None]:
    """What else ends us (`kill`, a terminal that is closed) ends the waiting as Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        for each in wanted:  # a closed terminal and its shell both send one
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    wanted = [each for each in _ENDINGS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.getsignal(each) for each in (*_ENDINGS, signal.SIGINT)}
    for each in wanted:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def _plain_words_at_last(words: _Words, course: Course) -> Iterator[None]:
    """When nobody waits any more, however that came, no deadline is promised either."""
    try:
        yield
    finally:
        if course.deadline is not None:
            for each in (*_ENDINGS, signal.SIGINT):  # the terminal may be closed after Ctrl-C
                signal.signal(each, signal.SIG_IGN)
            with contextlib.suppress(HpctoolsError):  # what ended the waiting is said, and counts
                if words.is_drained():
                    words.drain(course.message)


class _Words:
    """A node that is being drained, by the service (`hpctools.login.draining.Drainee`)."""

    def __init__(self, service: Service, node: str) -> None:
        self._service, self._node = service, node
        self._empty_since: float | None = None
        self.known = True

    def drain(self, why: str) -> None:
        """Have it drained, for this reason; new words are told anew."""
        self.known = put_drain(self._service, self._node, draining=True, why=why)

    def is_drained(self) -> bool:
        """Whether it still is, by the service; a node that it has never heard of is as it was told."""
        nodes = self._service.ask("GET", "/v1/login/nodes")["nodes"]
        found = next((each for each in nodes if each["name"] == self._node), None)
        if found is None:
            return not self.known
        return bool(found["state"] == "draining" or found["why"])

    def sessions(self) -> Mapping[int, str] | None:
        """People by the number of their session there; a tmux that nobody looks at does not hold it up.

        The service forgets the sessions of a node that is silent: nobody is there only when the node has said
        so since nobody was first seen there.
        """
        found = self._listed()
        if found:
            self._empty_since = None
            return found
        now = time.monotonic()
        if self._empty_since is None:
            self._empty_since = now
            return None
        nodes = self._service.ask("GET", "/v1/login/nodes")["nodes"]
        heard = next((each["heard_seconds_ago"] for each in nodes if each["name"] == self._node), None)
        return {} if heard is not None and heard + 1 <= now - self._empty_since else None

    def _listed(self) -> Mapping[int, str]:
        found = all_sessions(self._service, node=self._node)
        return {each["id"]: each["user"] for each in found if each["kind"] != "tmux"}

    def end(self, number: int) -> bool:
        """Have a session ended; False: it is over already, or does not count as its node is silent."""
        try:
            self._service.ask("DELETE", f"/v1/login/sessions/{number}")
        except UnreachableError:
            raise
        except HpctoolsError:
            if number in self._listed():
                raise
            return False
        return True


def _drain_here(message: str, wait: bool, as_json: bool) -> None:
    if wait:
        raise UsageError("--wait is not for --here", "see who is left: hpctools login here")
    found = ask_agent(SOCKET, {"ask": "drain", "draining": True, "why": message})
    name, count = found["node"], len(found["sessions"])
    told = {"node": name, "draining": True, "why": message, "sessions": count}
    show(told if as_json else f"{name} takes no new sessions; {count} are there\n")


def _check_not_named(node: str | None) -> None:
    """This very node may be another one than the named."""
    if node is not None:
        raise UsageError(f"--here is this very node, and {node} is named", "give one of them")


def _named(node: str | None) -> str:
    if node is None:
        raise UsageError("which node?", "name it, or --here for this one; hpctools login nodes lists them")
    return node


def _in_words(shown: Shown | str) -> None:
    """Only what is no figure: the figures come as JSON."""
    if isinstance(shown, str):
        _to_people(shown)


def _to_people(shown: Shown | str) -> None:
    if isinstance(shown, str):
        click.echo(shown, err=True)
        return
    people = ", ".join(
        f"{user} ({count})" if count > 1 else user for user, count in sorted(shown.people.items())
    )
    click.echo(f"{shown.count} session{'s' if shown.count != 1 else ''} left: {people}", err=True)
