"""Who we are: keys of the agent and of files in ssh's own order, then what a person is asked for."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from hpctools.errors import RemoteError
from hpctools.remote.names import shown
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import CheckedTransport, LostConnection, TurnedAway

_TRIES = 5
"""sshd hangs up after six (MaxAuthTries)."""
_PASSPHRASES = 3


@dataclass
class Person:
    """Somebody at the terminal, if anybody is; what was said once is not asked again.

    Attributes:
        ask: reads a line that is not shown; None: there is nobody.
    """

    ask: Callable[[str], str] | None
    _answers: dict[str, str] = field(default_factory=dict)

    def secret(self, prompt: str, *, again: bool = False) -> str | None:
        """What somebody answers; None when there is nobody."""
        if self.ask is None:
            return None
        if again or prompt not in self._answers:
            self._answers[prompt] = self.ask(prompt)
        return self._answers[prompt]


def at_terminal() -> Person:
    """Whoever sits at our terminal."""
    return Person(getpass.getpass if sys.stdin is not None and sys.stdin.isatty() else None)


def authenticate(transport: CheckedTransport, settings: HostSettings, person: Person) -> None:
    """Log in.

    Raises:
        RemoteError: the host takes none of what we have.
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
            raise _hung_up(transport, settings, error) from None
        raise _refused(settings, tried) from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise _hung_up(transport, settings, error) from None
    if not transport.is_authenticated():
        raise _refused(settings, tried)


def _is_silence(error: paramiko.AuthenticationException) -> bool:
    """Whether nothing came at all: a node whose homes hang is passed over, not asked with every key."""
    return str(error) == "Authentication timeout."


def _hung_up(
    transport: CheckedTransport, settings: HostSettings, error: Exception
) -> LostConnection | TurnedAway:
    if not transport.is_active() and (said := _last_words(transport)):
        return TurnedAway(settings, said)
    return LostConnection(f"{settings.alias} hung up while we logged in: {shown(str(error))}")


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
        for name, key in offered:
            tried.append(name)
            try:
                more = transport.auth_publickey(settings.user, key)
            except paramiko.BadAuthenticationType as error:
                return list(error.allowed_types)
            except paramiko.AuthenticationException as error:
                if not transport.is_active() or _is_silence(error):
                    raise
                continue
            if not transport.is_authenticated():
                tried.append("then " + ", ".join(more))  # a second step is asked for
            return list(more)
    return [each for each in more if each != "publickey"]


def keys(settings: HostSettings, person: Person) -> Generator[tuple[str, paramiko.PKey], None, None]:
    """Keys to offer, in ssh's order: the agent's that files name, the agent's others, then files."""
    with _agent_keys(settings.agent) as found:
        of_agent = {key.blob: key for key in found}
        named = {path: _public_blob(path) for path in settings.identity_files}
        first = [(path, of_agent[blob]) for path, blob in named.items() if blob in of_agent]
        yield from ((f"{path} (agent)", key) for path, key in first)
        if not settings.identities_only:
            rest = [key for blob, key in of_agent.items() if blob not in named.values()]
            # sshd hangs up after some, and the files are still to come.
            for key in rest[: max(0, _TRIES - len(first))]:
                yield f"{shown(key.comment) or key.get_name()} (agent)", key
        for path, blob in named.items():
            if blob not in of_agent and (loaded := _from_file(path, settings, person)) is not None:
                yield str(path), loaded


@contextlib.contextmanager
def _agent_keys(socket_path: str) -> Iterator[list[paramiko.AgentKey]]:
    """The agent's keys; it signs with them until the block ends."""
    agent = None if socket_path == "none" else _agent(socket_path)
    try:
        yield list(agent.get_keys()) if agent is not None else []
    finally:
        if agent is not None:
            agent.close()


def _agent(socket_path: str) -> paramiko.Agent | None:
    before = os.environ.get("SSH_AUTH_SOCK")
    if socket_path:
        os.environ["SSH_AUTH_SOCK"] = socket_path  # the only way that paramiko has
    try:
        return paramiko.Agent()
    except (paramiko.SSHException, OSError):
        return None
    finally:
        if socket_path and before is None:
            del os.environ["SSH_AUTH_SOCK"]
        elif before is not None:
            os.environ["SSH_AUTH_SOCK"] = before


def _public_blob(path: Path) -> bytes | None:
    """The public half beside a private key, or the file itself, which may be a public key."""
    for each in (path.with_name(path.name + ".pub"), path):
        with contextlib.suppress(OSError, ValueError, UnicodeDecodeError):
            return bytes(paramiko.pkey.PublicBlob.from_file(str(each)).key_blob)
    return None


def _from_file(path: Path, settings: HostSettings, person: Person) -> paramiko.PKey | None:
    if not path.is_file():
        return None
    passphrase: str | None = None
    for attempt in range(_PASSPHRASES + 1):
        try:
            return _with_certificate(_loaded(path, passphrase), settings)
        except (paramiko.PasswordRequiredException, TypeError):
            pass  # it has a passphrase
        except (ValueError, paramiko.SSHException, OSError):
            if passphrase is None:
                return None  # no key that paramiko can use: those of FIDO tokens are the agent's
        passphrase = person.secret(f"Passphrase of {path}: ", again=attempt > 0)
        if not passphrase:
            return None
    return None


def _loaded(path: Path, passphrase: str | None) -> paramiko.PKey:
    secret = passphrase.encode() if passphrase else None
    return paramiko.PKey.from_path(path, secret)


def _with_certificate(key: paramiko.PKey, settings: HostSettings) -> paramiko.PKey:
    for path in settings.certificate_files:
        with contextlib.suppress(ValueError, OSError):
            key.load_certificate(str(path))
    return key


def _by_asking(
    transport: CheckedTransport, settings: HostSettings, person: Person, more: list[str], tried: list[str]
) -> None:
    if person.ask is None:
        return
    if "keyboard-interactive" in more:
        tried.append("questions of the host")

        def answer(title: str, text: str, prompts: list[tuple[str, bool]]) -> list[str]:
            for line in (each for each in (title, text) if each.strip()):
                print("\n".join(shown(part) for part in line.splitlines()), file=sys.stderr)
            # One-time codes: never the answer of before.
            return [person.secret(shown(prompt), again=True) or "" for prompt, _ in prompts]

        transport.auth_interactive(settings.user, answer)
    elif "password" in more:
        tried.append("a password")
        transport.auth_password(
            settings.user, person.secret(f"Password of {settings.user}@{settings.alias}: ") or ""
        )


def _refused(settings: HostSettings, tried: list[str]) -> RemoteError:
    what = (
        shown(", ".join(tried))
        or "no key: there is neither one in the agent nor in a file that ssh would take"
    )
    return RemoteError(
        f"{settings.alias} does not let {settings.user} in with {what}",
        f"try `ssh {settings.alias}`; a key of a FIDO token has to be in the agent (ssh-add)",
    )
