"""The clusters that a person reaches from a laptop: ~/.config/hpctools/clusters.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hpctools.errors import UsageError
from hpctools.remote.names import is_host, is_user

COMMAND = "hp-submit"
FOLDER = "/opt/hpctools/bin"
"""Where our pages for sysadmins install it: looked into after the PATH, unless a command is stated."""
_LOOK = f'command -v {COMMAND} >/dev/null && exec {COMMAND} "$@"; exec {FOLDER}/{COMMAND} "$@"'
_KEYS = {"login_nodes", "user", "command", "api", "token", "python"}
_MERGE = "tag:yaml.org,2002:merge"  # `<<`, which may be there several times


@dataclass(frozen=True)
class Cluster:
    """A cluster.

    Attributes:
        login_nodes: names for ssh, in any order.
        user: who logs in; empty: as ssh's configuration says.
        command: what runs hp-submit there, words for the login shell; empty: it is looked for there.
        api: the site's API, which knows the best login node; empty: nobody is asked.
        token: the file with the person's token for it; empty: the usual one, no other site's API is known.
        python: what runs a Python file that says nothing itself.
    """

    name: str
    login_nodes: tuple[str, ...]
    user: str = ""
    command: str = ""
    api: str = ""
    token: str = ""
    python: str = "python3"

    @property
    def called(self) -> str:
        """What runs hp-submit there, for people."""
        return self.command or COMMAND

    def asking(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment in which its API is asked: with that and, where it has an own one, its token."""
        found = {**environment, **({"HPCTOOLS_API": self.api} if self.api else {})}
        other = environment.get("HPCTOOLS_API", "")
        is_others = self.api and other and other.rstrip("/") != self.api.rstrip("/")
        if is_others:  # whose token it is
            found.pop("HPCTOOLS_API_TOKEN_FILE", None)
        if is_others or (self.api and self.token):
            found.pop("HPCTOOLS_API_TOKEN", None)
        if self.api and self.token:
            home = environment.get("HOME", "/nonexistent")
            found["HPCTOOLS_API_TOKEN_FILE"] = re.sub("^~(?=/)", lambda _: home, self.token)
        return found

    @property
    def names_a_token(self) -> bool:
        """Whether the token's file is stated, and not just where a token would be."""
        return self.token not in ("", own_token(self.name))

    def line(self, word: str) -> str:
        """hp-submit with a word, for the login shell, whichever that is: csh and fish read it, too.

        The PATH stays as it is, since jobs inherit it.
        """
        stated = self.command or f"sh -c '{_LOOK}' {COMMAND}"
        return f"{stated} {word}"


def own_token(name: str) -> str:
    """Where the token of a cluster is, when there are several APIs and its file is not stated."""
    return f"~/.hpctools/token-{quote(name, safe='')}"


@dataclass(frozen=True)
class Clusters:
    """All of them.

    Attributes:
        usual: the one that is meant when nobody names one; empty: none.
    """

    known: Mapping[str, Cluster]
    usual: str = ""

    def find(self, name: str) -> Cluster:
        """A cluster by its name; a name that the file does not have is a host for ssh.

        Raises:
            UsageError: it cannot be a host.
        """
        if name in self.known:
            return self.known[name]
        if not is_host(name):
            raise UsageError(
                f"--cluster {name!r} is neither in clusters.yaml nor a host",
                "name a cluster of ~/.config/hpctools/clusters.yaml, or a login node",
            )
        return Cluster(name, (name,))


def place(environment: Mapping[str, str]) -> Path:
    """Where the file is, whether it is there or not: $HPCTOOLS_CLUSTERS, or in $XDG_CONFIG_HOME."""
    named = environment.get("HPCTOOLS_CLUSTERS")
    if named:
        return Path(named)
    home = Path(environment.get("HOME", "/nonexistent"))
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "hpctools" / "clusters.yaml"


def load(path: Path) -> Clusters:
    """Read the file; none where there is no file.

    Raises:
        UsageError: it cannot be read or understood.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Clusters({})
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "see docs/laptop.md") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: {error}", "see docs/laptop.md") from None
    import yaml  # slow to import, and only those need it who have such a file

    try:
        _refuse_second_entries(yaml.compose(text, Loader=yaml.SafeLoader), path)
        content = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError) as error:  # of a day that no month has
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}", "see docs/laptop.md") from None
    except RecursionError:
        raise _wrong(path, "lists lie too deep in one another") from None
    return _clusters(content, path)


def _refuse_second_entries(node: Any, path: Path, names: str = "", levels: int = 3) -> None:
    """Of entries of one name YAML takes the last without a word; down to the keys of a cluster."""
    if levels == 0 or getattr(node, "id", "") != "mapping":
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = f"{names}{key.value}", key.start_mark.line + 1
        if name in lines and key.tag != _MERGE:
            told = f"{name} stands in line {lines[name]} and again in line {line}"
            raise _wrong(path, f"{told}; keep one of them, or give one another name")
        lines[name] = line
        _refuse_second_entries(value, path, f"{name}.", levels - 1)


def _clusters(content: Any, path: Path) -> Clusters:
    if not isinstance(content, dict) or content.keys() - {"clusters", "default"}:
        raise _wrong(path, "its keys are `clusters` and `default`")
    stated = content.get("clusters") or {}
    if not isinstance(stated, dict):
        raise _wrong(path, "`clusters` holds names and what each is")
    known = _with_tokens(
        {_name(name, path): _cluster(str(name), value, path) for name, value in stated.items()}
    )
    stated = content.get("default")
    usual = "" if stated is None else str(stated)
    if usual and usual not in known:
        raise _wrong(path, f"`default: {usual}` is none of its clusters")
    return Clusters(known, usual)


def _name(stated: Any, path: Path) -> str:
    """A cluster's name; YAML takes `no`, `on` and the like for something else."""
    if isinstance(stated, bool) or not isinstance(stated, (str, int)):
        raise _wrong(path, f"{stated!r} is no cluster's name; names such as no, on or 1.5 need quotes")
    return str(stated)


def _with_tokens(known: Mapping[str, Cluster]) -> dict[str, Cluster]:
    """Where there are several APIs, each has a token of its own: no site gets to know another one's."""
    if len({each.api.rstrip("/") for each in known.values()} - {""}) < 2:
        return dict(known)
    return {name: replace(each, token=each.token or own_token(name)) for name, each in known.items()}


def _cluster(name: str, value: Any, path: Path) -> Cluster:
    if isinstance(value, (str, list)):
        value = {"login_nodes": value}
    if not isinstance(value, dict) or value.keys() - _KEYS:
        strange = sorted(map(str, value.keys() - _KEYS)) if isinstance(value, dict) else []
        others = f", and not {', '.join(strange)}" if strange else ""
        raise _wrong(path, f"clusters.{name} may have {', '.join(sorted(_KEYS))}{others}")
    nodes = value.get("login_nodes")
    nodes = [nodes] if isinstance(nodes, str) else nodes
    if not isinstance(nodes, list) or not nodes:
        raise _wrong(path, f"clusters.{name}.login_nodes is a list of hosts")
    if wrong := [each for each in nodes if not (isinstance(each, str) and is_host(each))]:
        raise _wrong(path, f"clusters.{name}.login_nodes: {wrong[0]!r} is no host; who logs in is `user`")
    texts = {key: value[key] for key in _KEYS - {"login_nodes"} if key in value}
    wrong = [key for key, text in texts.items() if not (isinstance(text, str) and text.isprintable())]
    if wrong or not is_user(texts.get("user", "u")):
        raise _wrong(path, f"clusters.{name}.{(wrong or ['user'])[0]} is no plain text; numbers need quotes")
    return Cluster(name, tuple(nodes), **texts)


def _wrong(path: Path, what: str) -> UsageError:
    return UsageError(f"{path}: {what}", "docs/laptop.md has an example")
