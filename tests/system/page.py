"""The commands of a page of the documentation, by the machines that they are for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hpctools.sandbox.hosts import Host

SECONDS = 120.0
DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(?P<kind>\w*)(?P<where>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        kind: `sh` for commands, `yaml` for a file.
        where: machines that the commands are for; the path of a file.
        user: who runs them.
        text: what stands in it.
        section: the heading above it.
    """

    kind: str
    where: tuple[str, ...]
    user: str
    text: str
    section: str


def follow(block: Block, run: Callable[[str], str]) -> str:
    """Run a block on each of its machines at once; return what they printed, in the machines' order."""
    with ThreadPoolExecutor(max_workers=len(block.where)) as pool:
        return "".join(pool.map(run, block.where))


def on_host(host: Host, block: Block) -> str:
    """Run a block on a machine as root, or through sshd as somebody."""
    if block.user == "root":
        return host.run(["bash", "-euo", "pipefail", "-c", block.text], timeout=SECONDS).stdout
    # Not through standard input, which srun would read to its end.
    script = f"bash -euo pipefail -c {shlex.quote(block.text)}"
    return host.ssh(block.user, script, timeout=SECONDS).stdout


def blocks(name: str) -> list[Block]:
    """The fenced blocks of a page, in order; the machines stand behind the kind, `as USER` behind those.

    >>> [block.where for block in blocks("bootstrap-own-nodes.md") if block.user == "ben"]
    [('login-1',)]
    """
    page, found = (DOCS / name).read_text(), []
    for match in BLOCK.finditer(page):
        where, _, user = match["where"].strip().partition(" as ")
        section = HEADING.findall(page, 0, match.start())[-1]
        found.append(Block(match["kind"], tuple(where.split()), user or "root", match["text"], section))
    return found
