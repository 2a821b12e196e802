"""Who we are: keys of the agent and of files in ssh's own order, then what a person is asked for."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import paramiko

from hpctools.errors import RemoteError
from hpctools.remote import own_keys
from hpctools.remote.names import shown, shown_lines
from hpctools.remote.own_keys import Offer, Ring
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import (
    CheckedTransport,
    HungUp,
    LostConnection,
    NoKeyTaken,
    NotSigned,
    TurnedAway,
)

_TRIES = 5
"""sshd hangs up after six (MaxAuthTries)."""
_PASSPHRASES = 3
_QUESTIONS, _PASSWORD, _THEN, _UNSIGNED = (
    "questions of the host",
    "a password",
    "then ",
    ", which did not sign",
)
_Question = tuple[str, str, list[tuple[str, bool]]]
_Answer = Callable[[str, str, list[tuple[str, bool]]], list[str]]


@dataclass
class Person:
    """Somebody at the terminal, if anybody is; what was said once is not asked again.

    Attributes:
        ask: reads a line that is not shown; None: there is nobody, or there is no more.
        unable: public halves of keys that did not sign (card removed, `ssh-add -c` denied): not asked again.
    """

    ask: Callable[[str], str] | None
    unable: set[bytes] = field(default_factory=set)
    _answers: dict[str, str] = field(default_factory=dict)

    def secret(self, prompt: str, *, again: bool = False) -> str | None:
        """What somebody answers; None when there is nobody."""
        if self.ask is None:
            return None
        if again or prompt not in self._answers:
            try:
                self._answers[prompt] = self.ask(prompt)
            except EOFError:  # Ctrl-D: who goes is not asked by the next node
                self.ask = None
                return None
        return self._answers[prompt]


def at_terminal() -> Person:
    """Whoever sits at our terminal, if there is one; standard input may be the script that is submitted."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return Person(getpass.getpass if sys.stdin is not None and sys.stdin.isatty() else None)
    return Person(getpass.getpass)


def authenticate(transport: CheckedTransport, settings: HostSettings, person: Person) -> None:
    """Log in.

    Raises:
        NoKeyTaken: the host takes none of our keys, and nobody was asked for anything else.
        NotSigned: the same, but for a key that did not sign.
        RemoteError: it takes none of what we have, or no more attempts.
        TurnedAway: it took it, and says why we may not come in all the same.
        LostConnection: the connection broke.
    """
    tried: list[str] = []
    try:
        more = _with_keys(transport, settings, person, tried)
        if more and not transport.is_authenticated():
            _by_asking(transport, settings, person, more, tried)
    except paramiko.AuthenticationException as error:
        if not transport.is_active() or _is_silence(error):
            raise _hung_up(transport, settings, tried, error) from None
        raise _refused(settings, tried) from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise _hung_up(transport, settings, tried, error) from None
    if not transport.is_authenticated():
        raise _refused(settings, tried)


def _is_silence(error: paramiko.AuthenticationException) -> bool:
    """Whether nothing came at all: a node whose homes hang is passed over, not asked with every key."""
    return str(error) == "Authentication timeout."


def _hung_up(
    transport: CheckedTransport, settings: HostSettings, tried: Sequence[str], error: Exception
) -> RemoteError | LostConnection:
    said = _last_words(transport)
    if not transport.is_active():
        # Who says no closes in order. Where a line broke (a reset, no route) these may be the site's own
        # `Banner`, or PAM's reason, whose close became a reset.
        if said and not isinstance(error, OSError):
            return TurnedAway(settings, said)
        if _too_many(transport, tried):
            return RemoteError(
                f"{settings.alias} takes no more attempts to log in {settings.user} than these: "
                f"{shown(', '.join(tried))}",
                f"let the right key come first: IdentityFile and `IdentitiesOnly yes` for {settings.alias} "
                "in ~/.ssh/config",
            )
    before = f"; before that it said:\n{shown_lines(said)}" if said else ""
    return HungUp(f"{settings.alias} hung up while we logged in: {shown(str(error))}{before}")


def _too_many(transport: CheckedTransport, tried: Sequence[str]) -> bool:
    """Whether it hung up because of MaxAuthTries; OpenSSH says so, others just hang up.

    It is no broken line: the same attempts on the next node would end the same way, and get us banned.
    """
    if "too many authentication failures" in transport.parting.lower():
        return True
    return len(tried) >= _TRIES and tried[-1] not in (_QUESTIONS, _PASSWORD)


def _last_words(transport: CheckedTransport) -> str:
    """What sshd told during the last attempt: PAM's reason, or the site's own banner at the first one."""
    # `get_banner` tells it only while the connection is there.
    banner = getattr(getattr(transport, "auth_handler", None), "banner", None)
    return bytes(banner).decode("utf-8", "replace").strip() if banner else ""


def _with_keys(
    transport: CheckedTransport, settings: HostSettings, person: Person, tried: list[str]
) -> list[str]:
    """Try keys; return what else the host would take, or nothing once we are in."""
    more = ["publickey", "keyboard-interactive", "password"]
    with contextlib.closing(keys(settings, person)) as offered:
        for offer in offered:
            tried.append(offer.name + (" with a certificate" if offer.certificate else ""))
            try:
                more = transport.auth_publickey(settings.user, offer)
            except paramiko.BadAuthenticationType as error:
                return list(error.allowed_types)
            except paramiko.AuthenticationException as error:
                if not transport.is_active() or _is_silence(error):
                    raise
                if offer.blob in person.unable:
                    tried[-1] += _UNSIGNED
                continue
            if not transport.is_authenticated():
                tried.append(_THEN + ", ".join(more))  # a second step is asked for
            return list(more)
    return [each for each in more if each != "publickey"]


def keys(settings: HostSettings, person: Person) -> Generator[Offer, None, None]:
    """Keys to offer, in ssh's order: the agent's that files name, the agent's others, then files.

    Each with its certificates before the bare key; none that did not sign before.
    """
    with own_keys.agent_keys(settings.agent) as found:
        ring = own_keys.ring(found, settings, person.unable)
        for offer in _in_order(ring, settings, person):
            if offer.blob not in person.unable:
                yield offer


def _in_order(ring: Ring, settings: HostSettings, person: Person) -> Iterator[Offer]:
    named = {path: own_keys.public_half(path) for path in settings.identity_files}
    by_blob = {blob: path for path, blob in reversed(named.items()) if blob in ring.held}
    first = [
        each
        for blob in dict.fromkeys(named.values())
        if blob in ring.held
        for each in ring.of_agent(blob, str(by_blob[blob]))
    ]
    yield from first
    if not settings.identities_only:
        others = [each for blob in ring.held if blob not in by_blob for each in ring.of_agent(blob)]
        # sshd hangs up after some, and the files are still to come.
        yield from others[: max(0, _TRIES - len(first))]
    for path, blob in named.items():
        if blob not in by_blob and (loaded := _from_file(path, person)) is not None:
            yield from ring.of_file(loaded, str(path))


def _from_file(path: Path, person: Person) -> paramiko.PKey | None:
    if not path.is_file():
        return None
    passphrase: str | None = None
    for attempt in range(_PASSPHRASES + 1):
        try:
            return own_keys.load(path, passphrase)
        except (paramiko.PasswordRequiredException, TypeError):
            pass  # it has a passphrase
        except own_keys.UNUSABLE:
            if passphrase is None:
                return None  # no key that paramiko can use: those of FIDO tokens are the agent's
        if attempt == _PASSPHRASES:
            return None
        passphrase = person.secret(f"Passphrase of {path}: ", again=attempt > 0)
        if not passphrase:
            return None
    return None


def _by_asking(
    transport: CheckedTransport, settings: HostSettings, person: Person, more: list[str], tried: list[str]
) -> None:
    """What the host asks, then a password, as ssh does."""
    if person.ask is None:
        return
    if "keyboard-interactive" in more:
        try:
            _answer_questions(transport, settings, person, tried)
            return
        except paramiko.AuthenticationException as error:
            if person.ask is None or "password" not in _still_offered(transport, settings, error):
                raise
    if "password" in more:
        password = person.secret(f"Password of {settings.user}@{settings.alias}: ")
        if password is not None:
            tried.append(_PASSWORD)
            transport.auth_password(settings.user, password)


def _still_offered(
    transport: CheckedTransport, settings: HostSettings, error: paramiko.AuthenticationException
) -> list[str]:
    """What a host offers that refused questions, which paramiko tells only where it does not offer those."""
    if not transport.is_active() or _is_silence(error):
        return []
    if not isinstance(error, paramiko.BadAuthenticationType):
        try:
            return list(transport.auth_none(settings.user))
        except paramiko.BadAuthenticationType as refused:
            error = refused
    return list(error.allowed_types)


def _answer_questions(
    transport: CheckedTransport, settings: HostSettings, person: Person, tried: list[str]
) -> None:
    def answer(title: str, text: str, prompts: list[tuple[str, bool]]) -> list[str]:
        if prompts and _QUESTIONS not in tried:
            tried.append(_QUESTIONS)
        for line in (each for each in (title, text) if each.strip()):
            print("\n".join(shown(part) for part in line.splitlines()), file=sys.stderr)
        # One-time codes: never the answer of before.
        return [person.secret(shown(prompt), again=True) or "" for prompt, _ in prompts]

    _asked_here(transport, settings.user, answer)


def _asked_here(transport: CheckedTransport, user: str, answer: _Answer) -> None:
    """Keyboard-interactive with its questions asked in this thread.

    Paramiko asks in a thread of its own, which Ctrl-C does not reach: the terminal was left without echo.
    """
    questions: SimpleQueue[_Question | None] = SimpleQueue()
    answers: SimpleQueue[list[str]] = SimpleQueue()
    failures: list[Exception] = []

    def ask(title: str, text: str, prompts: list[tuple[str, bool]]) -> list[str]:
        questions.put((title, text, prompts))
        return answers.get()

    def log_in() -> None:
        try:
            transport.auth_interactive(user, ask)
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            failures.append(error)
        finally:
            questions.put(None)

    threading.Thread(target=log_in, daemon=True).start()
    try:
        while (question := questions.get()) is not None:
            answers.put(answer(*question))
    finally:
        answers.put([])  # who still waits for one is let go
    if failures:
        raise failures[0]


def _kind_of_no(tried: Sequence[str]) -> type[RemoteError]:
    if any(each in (_QUESTIONS, _PASSWORD) or each.startswith(_THEN) for each in tried):
        return RemoteError
    return NotSigned if any(each.endswith(_UNSIGNED) for each in tried) else NoKeyTaken


def _refused(settings: HostSettings, tried: list[str]) -> RemoteError:
    what = (
        shown(", ".join(tried))
        or "no key: there is neither one in the agent nor in a file that ssh would take"
    )
    return _kind_of_no(tried)(
        f"{settings.alias} does not let {settings.user} in with {what}",
        f"try `ssh {settings.alias}`; a key of a FIDO token has to be in the agent (ssh-add)",
    )
