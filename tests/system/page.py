"""The commands of a page of the documentation, by the machines that they are for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(?P<kind>\w*)(?P<where>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        kind: `sh` for commands, `yaml` for a file.
        where: machines that the commands are for; the path of a file.
        user: who runs them.
        text: what stands in it.
    """

    kind: str
    where: tuple[str, ...]
    user: str
    text: str


def blocks(name: str) -> list[Block]:
    """The fenced blocks of a page, in order; the machines stand behind the kind, `as USER` behind those.

    >>> [block.where for block in blocks("bootstrap-own-nodes.md") if block.user == "ben"]
    [('login-1',)]
    """
    found = []
    for match in BLOCK.finditer((DOCS / name).read_text()):
        where, _, user = match["where"].strip().partition(" as ")
        found.append(Block(match["kind"], tuple(where.split()), user or "root", match["text"]))
    return found
