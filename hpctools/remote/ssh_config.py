"""What a person's ssh configuration says of a host: ssh's own reading of it where ssh is there."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpctools.errors import CommandError, RemoteError
from hpctools.remote.own_name import by_login
from hpctools.slurm.run import run

Stated = Mapping[str, Sequence[str]]
"""Values of each option, by its name in lower case, as written."""

_SECONDS = 10.0
_USUAL_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
_USUAL: dict[str, list[str]] = {
    "identityfile": [f"~/.ssh/{name}" for name in _USUAL_KEYS],
    "userknownhostsfile": ["~/.ssh/known_hosts ~/.ssh/known_hosts2"],
    "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
}


class SshFailed(RemoteError):
    """`ssh -G` did not tell its configuration: that may need names, which no network resolves."""


@dataclass(frozen=True)
class HostSettings:
    """How a host is reached.

    Attributes:
        alias: the name that was asked for.
        host, port: where its sshd is.
        user: who logs in.
        known_as: the host's name for known_hosts (HostKeyAlias); empty: `host` with its port.
        identity_files, certificate_files: private keys to try, and certificates of people.
        identities_only: no other key of the agent's than those is tried.
        agent: the agent's socket; "none": there is none to be asked; empty: $SSH_AUTH_SOCK.
        user_known_hosts, global_known_hosts, revoked_keys: files, whether they are there or not.
        hash_names: names that are added to known_hosts are hashed.
        proxy_command: a shell command whose standard input and output lead there.
        jumps: hosts to go through, in order.
        connect_seconds: how long to wait for it; 0: as long as is usual.
        named_port: the port, where it was stated with the name (ProxyJump gate:2222); 0: it was not.
    """

    alias: str
    host: str
    port: int
    user: str
    known_as: str = ""
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str = ""
    user_known_hosts: tuple[Path, ...] = ()
    global_known_hosts: tuple[Path, ...] = ()
    revoked_keys: Path | None = None
    hash_names: bool = False
    proxy_command: str = ""
    jumps: tuple[str, ...] = ()
    connect_seconds: int = 0
    named_port: int = 0

    @property
    def name(self) -> str:
        """As people name the host to `hp-submit trust`."""
        if not self.named_port:
            return self.alias
        return f"[{self.alias}]:{self.named_port}" if ":" in self.alias else f"{self.alias}:{self.named_port}"

    def at(self, port: int) -> HostSettings:
        """The same host, at a port that was stated with its name; 0: there was none."""
        return replace(self, port=port, named_port=port) if port else self


def settings(host: str, user: str = "", config: Path | None = None) -> HostSettings:
    """What is said of a host.

    Args:
        user: who logs in, whatever the configuration says; as it says when empty.
        config: another file than ~/.ssh/config and the machine's.

    Raises:
        SshFailed: ssh does not tell it.
        RemoteError: the configuration cannot be understood.
    """
    stated = _asked(host, user, config) if shutil.which("ssh") else _read(host, config)
    return interpret(host, stated, user)


def _asked(host: str, user: str, config: Path | None) -> Stated:
    words = ["-F", str(config)] if config else []
    words += ["-l", user] if user else []
    try:
        done = run(["ssh", *words, "-G", "--", host], timeout=_SECONDS)
    except CommandError as error:
        said = error.stderr_tail or str(error)
        raise SshFailed(
            f"ssh cannot read its configuration: {said}", f"see {config or '~/.ssh/config'}"
        ) from None
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value)
    return found


def _read(host: str, config: Path | None) -> Stated:
    """The file as paramiko reads it, which knows no Include."""
    try:
        import paramiko
    except ImportError:
        raise RemoteError("there is no ssh on this machine", "install OpenSSH's client") from None

    path = config or Path.home() / ".ssh" / "config"
    parsed = paramiko.SSHConfig()
    try:
        if path.exists():
            parsed = paramiko.SSHConfig.from_path(str(path))
        found = parsed.lookup(host)
    except (OSError, ImportError, paramiko.ssh_exception.SSHException) as error:
        raise RemoteError(f"cannot read {path}: {error}", "correct it") from None
    texts = {key: [value] if isinstance(value, str) else list(value) for key, value in found.items()}
    return {**_USUAL, **texts}


def interpret(alias: str, stated: Stated, user: str = "") -> HostSettings:
    """Options as ssh names them, put into our words; `none` and tokens as ssh_config(5) has them."""

    def one(key: str, usual: str = "") -> str:
        value = next(iter(stated.get(key, ())), usual)
        return usual if value == "none" else value

    port = one("port", "22")
    host = one("hostname", alias)
    who = user or one("user") or by_login()
    tokens = {"h": host, "n": alias, "p": port, "r": who, "%": "%", "k": one("hostkeyalias", alias)}

    def paths(key: str) -> tuple[Path, ...]:
        words = [word for value in stated.get(key, ()) for word in _words(key, value) if word != "none"]
        found = dict.fromkeys(_path(word, tokens) for word in words)
        # A known_hosts file in the folder where somebody happens to be, such as a checkout, says nothing.
        return tuple(path for path in found if path.is_absolute() or not key.endswith("knownhostsfile"))

    return HostSettings(
        alias=alias,
        host=host,
        port=int(port) if port.isdecimal() else 22,
        user=who,
        known_as=one("hostkeyalias"),
        identity_files=paths("identityfile"),
        certificate_files=paths("certificatefile"),
        identities_only=one("identitiesonly") == "yes",
        agent=_agent(next(iter(stated.get("identityagent", ())), ""), tokens),
        user_known_hosts=paths("userknownhostsfile"),
        global_known_hosts=paths("globalknownhostsfile"),
        revoked_keys=next(iter(paths("revokedhostkeys")), None),
        hash_names=one("hashknownhosts") == "yes",
        proxy_command=expand(one("proxycommand"), tokens),
        jumps=_jumps(one("proxyjump"), tokens),
        connect_seconds=int(number) if (number := one("connecttimeout")).isdecimal() else 0,
    )


def _words(key: str, value: str) -> list[str]:
    # Of the known_hosts files several stand in one line; elsewhere a space belongs to the name.
    if not key.endswith("knownhostsfile"):
        return [value.strip().strip('"')]
    # `ssh -G` quotes none of them: a word that begins no path belongs to the one before it.
    return [word.strip('"') for word in re.split(r'\s+(?="?[/~$%]|none(?:\s|$))', value.strip())]


def _jumps(value: str, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of ProxyJump with its own tokens (ssh_config(5)) replaced, which `ssh -G` leaves as written.

    They speak of the host behind them all. What another % begins is an address' zone.
    """
    words = (part.strip() for part in value.split(","))
    return tuple(re.sub("%([%hnpr])", lambda found: tokens[found[1]], word) for word in words if word)


def _agent(value: str, tokens: Mapping[str, str]) -> str:
    if value in ("", "none", "SSH_AUTH_SOCK"):
        return "none" if value == "none" else ""
    if value.startswith("$") and not value.startswith("${"):
        return os.environ.get(value[1:], "none")
    return str(_path(value.strip('"'), tokens))


def _path(word: str, tokens: Mapping[str, str]) -> Path:
    path = Path(expand(word, tokens))
    try:
        return path.expanduser()
    except RuntimeError:
        raise RemoteError(
            f"ssh's configuration names {path}, and there is no such home", "see ~/.ssh/config"
        ) from None


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """A text with its %-tokens and ${variables} replaced; what is not known stays."""
    known = {**_local_tokens(), **tokens} if "%" in text else tokens
    text = re.sub(r"%(.)", lambda found: known.get(found[1], found[0]), text)
    return re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], found[0]), text)


def _local_tokens() -> dict[str, str]:
    name = socket.gethostname()
    home = str(Path.home())
    return {"d": home, "i": str(os.getuid()), "u": by_login(), "l": name, "L": name.split(".")[0]}
