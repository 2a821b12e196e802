"""What a run asks of the cluster, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpctools.submit.nodes import NodeSizes

_WORDS = {"node": "nodes", "cpu": "CPUs", "gres/gpu": "GPUs", "mem": "MiB of memory"}


@dataclass(frozen=True)
class Request:
    """What a run asks of the cluster.

    Attributes:
        account, qos: as asked for; None: the user's default.
        partitions: as asked for, or the default one.
        per_node: TRES that each node gives at least, where that is known.
        minutes: the time limit; None when none was asked for.
        unlimited: whether it was asked that there be none (`--time=0`, `unlimited`).
        begins_later: whether it waits for a time (`--begin`), when more may be left than now.
        graceful_s, graceful_place: seconds that those who leave want to have, and where that stands; None:
            as long as they get.
        whole: whether whole nodes are asked for (`--exclusive`), which give all that they have.
        runs, at_once: how many such runs there will be, and how many of them at a time (`--array`).
    """

    sizes: NodeSizes
    account: str | None = None
    qos: str | None = None
    partitions: tuple[str, ...] = ()
    per_node: Mapping[str, int] | None = None
    minutes: int | None = None
    begins_later: bool = False
    graceful_s: float | None = None
    graceful_place: str = ""
    runs: int = 1
    at_once: int = 1
    unlimited: bool = False
    whole: bool = False

    @property
    def said(self) -> str:
        """How to name the request in a message."""
        return f"--nodes {self.sizes}"

    @property
    def what(self) -> str:
        """As `said`, with how many runs there are."""
        return self.said if self.runs == 1 else f"{self.said} in an array of {self.runs} runs"


def tres_in_words(tres: str) -> str:
    """How a person calls a TRES: `gres/gpu:a100` is `a100 GPUs`."""
    plain, _, kind = tres.partition(":")
    return f"{kind} {_WORDS.get(plain, plain)}".strip()
