"""What the site says about logging in: section `access` of settings.json, checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = "root"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@ -]{0,63}", re.ASCII)


class SettingsError(Exception):
    """The settings cannot be read, or say what no stack can be made of."""


@dataclass(frozen=True)
class Settings:
    """Section `access`.

    Attributes:
        users: administrators by name; root is one whether named or not.
        groups: Unix groups whose members are administrators.
        several_jobs: `newest` or `deny`: what becomes of a person with several jobs on a node, who comes from
            outside of them.
        wait_for_job: seconds to wait for a job that is just starting.
        adopt_module: path of pam_slurm_adopt.so; found when empty.
        slurmd_pid_file: slurmd's pid file; `%n` is the node's name.
        sessions_per_user: sessions of a person on one login node; 0 for no limit.
        sessions: sessions of all people on one login node; 0 for no limit.
        session_hook: a program that is asked too before a session on a login node; empty for none.
        agent_socket: the socket of an agent that is asked instead; empty for none.
        when_unreachable: `open` or `refuse`: what becomes of a login when the agent does not answer.
    """

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("sudo", "wheel")
    several_jobs: str = "newest"
    wait_for_job: int = 10
    adopt_module: str = ""
    slurmd_pid_file: str = "/var/run/slurmd.pid"
    sessions_per_user: int = 0
    sessions: int = 0
    session_hook: str = ""
    agent_socket: str = ""
    when_unreachable: str = "open"


def load(path: Path | None) -> Settings:
    """Read settings.json; without a file everything has its default.

    Raises:
        SettingsError: it cannot be read, or says something that cannot be.
    """
    if path is None:
        return Settings()
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path} is damaged: {error}") from None
    if not isinstance(whole, dict):
        raise SettingsError(f"{path} is damaged: no JSON object")
    try:
        return from_section(whole.get("access") or {})
    except SettingsError as error:
        raise SettingsError(f"{path}: access: {error}") from None


def from_section(section: object) -> Settings:
    """The settings that section `access` stands for; keys that are left out have their defaults.

    Raises:
        SettingsError: it says something that cannot be.
    """
    access = _Section("", section)
    people, compute, login = (access.part(name) for name in ("administrators", "compute", "login"))
    fresh = Settings()
    return Settings(
        users=tuple(n for n in people.names("users", fresh.users) if n != ROOT),
        groups=people.names("groups", fresh.groups),
        several_jobs=compute.choice("several_jobs", ("newest", "deny")),
        wait_for_job=compute.number("wait_for_job", fresh.wait_for_job, 60),
        adopt_module=compute.path("adopt_module", ""),
        slurmd_pid_file=compute.path("slurmd_pid_file", fresh.slurmd_pid_file),
        sessions_per_user=login.number("sessions_per_user", 0, 100_000),
        sessions=login.number("sessions", 0, 100_000),
        session_hook=login.path("session_hook", ""),
        agent_socket=login.path("agent_socket", ""),
        when_unreachable=login.choice("when_unreachable", ("open", "refuse")),
    )


class _Section:
    """One JSON object; says where when something is wrong."""

    def __init__(self, name: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{name or 'the section'} must be an object, not {value!r}")
        self.name = name
        self.value: Mapping[str, Any] = value

    def _wrong(self, key: str, expected: str) -> SettingsError:
        return SettingsError(f"{self.name}.{key} must be {expected}, not {self.value.get(key)!r}")

    def part(self, key: str) -> _Section:
        return _Section(key, self.value.get(key) or {})

    def names(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        found = self.value.get(key)
        if found is None:
            return default
        if not isinstance(found, list) or not all(isinstance(n, str) and _NAME.fullmatch(n) for n in found):
            raise self._wrong(key, "a list of Unix names")
        return tuple(dict.fromkeys(found))

    def number(self, key: str, default: int, most: int) -> int:
        found = self.value.get(key)
        if found is None:
            return default
        if type(found) is not int or not 0 <= found <= most:
            raise self._wrong(key, f"a number from 0 to {most}")
        return found

    def choice(self, key: str, words: tuple[str, ...]) -> str:
        found = self.value.get(key) or words[0]
        if found not in words:
            raise self._wrong(key, " or ".join(words))
        return str(found)

    def path(self, key: str, default: str) -> str:
        found = self.value.get(key) or default
        if not isinstance(found, str) or (found and not re.fullmatch(r"/[A-Za-z0-9_./%+-]+", found)):
            raise self._wrong(key, "an absolute path of letters, digits and _./%+-")
        return found
