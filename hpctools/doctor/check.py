"""What a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpctools.doctor.model import Finding


@dataclass(frozen=True)
class Check:
    """One question that is put to a snapshot.

    Attributes:
        run: takes the parts in `needs`, in their order, and yields what is wrong.
        needs: names of the fields of Installation that it looks at.
    """

    run: Callable[..., Iterable[Finding]]
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name: the function's, with hyphens."""
        return self.run.__name__.replace("_", "-")


def checks(*pairs: tuple[Callable[..., Iterable[Finding]], str]) -> tuple[Check, ...]:
    """Checks of functions, each with the words of its needs."""
    return tuple(Check(run, tuple(needs.split())) for run, needs in pairs)


def fold(names: Iterable[str]) -> str:
    """Names as a folded host list."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))
