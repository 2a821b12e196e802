"""What those that watch a run get to see of it, and what they must be: see `Watcher`.

The coordinator calls its watchers from its own loop: they return what should be done (`actions`), they never
block, and they keep no clock of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hpctools.elastic.actions import Action


@dataclass(frozen=True)
class Report:
    """Something that a worker, or the agent on its node, has told.

    Attributes:
        kind: `beat` (a sign of life of a worker that trains), `metric` (numbers that the loop reported),
            `log` (what a log rule found in a worker's output), `exit` (a worker's process has ended),
            `notice` (somebody said that the node will be taken away), or `no_way_back` (nothing is kept of so
            few steps as a roll back should go back to).
        worker: its name; empty for a notice.
        node: Slurm's name of the node; empty while its worker's agent is not here.
        step: completed optimizer steps as far as the worker said; None: it said nothing. Of `no_way_back`: of
            what is kept; None: of nothing, and all begin again at the beginning.
        metrics: numbers by name, as floats (`loss`, `step_s`, ...); not finite ones are there as they are.
        in_steps: of some numbers (the loss, told by the first worker; the loop's own, by each) which value
            came in which step since the last report: (step, value), ascending.
        lines: of `exit`: the last lines of standard error, without line ends, oldest first; of `log`: a line
            that matched.
        code: of `exit`: the process's exit code; negative: the signal that ended it.
        what: of `notice`: `spot`, `rebalance` or `drain`; of `log`: the rule; of `no_way_back`: why.
        seconds: of `notice`: until the node is gone; None when nobody said.
        past: of `log` in restart mode: whether all ranks have been started again since.
        generation: of `log` in restart mode: that of the rank that printed; None: its agent did not say.
    """

    kind: str
    worker: str
    node: str
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    in_steps: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    code: int | None = None
    what: str = ""
    seconds: float | None = None
    past: bool = False
    generation: int | None = None


@dataclass(frozen=True)
class MemberView:
    """A worker that is connected.

    Attributes:
        node: Slurm's name of it; empty while the worker's agent is not here.
        step: completed steps as it last said; None: it said nothing yet.
        seen: when it was last heard, on the clock of `now`.
        trains: whether it belongs to the generation in force.
        waits: whether it has done its part of the step and waits for the others, as it last said.
        between: whether its loop is between two passes over the data (or after the last one), where it may
            validate, as it last said.
        ready: whether it could train, or does.
        leaves: whether its node goes, or is given up, and it with it.
        mute: whether its agent gives no sign of life: it may be lost with that one, and nobody hears what it
            prints.
    """

    worker: str
    node: str
    step: int | None
    seen: float
    trains: bool
    waits: bool = False
    between: bool = False
    ready: bool = False
    leaves: bool = False
    mute: bool = False


ASLEEP = "asleep"


@dataclass(frozen=True)
class View:
    """The run at a moment.

    Attributes:
        step: committed optimizer steps.
        world: workers that train.
        generation: number of the membership in force; 0 before the first.
        phase: `starting` (nobody has the state yet, and as many workers as the least are there or start),
            `running`, `resizing` (a planned change is on its way), `recovering` (somebody was lost),
            `waiting` (fewer workers than the least), `finishing` (the last step is done) or `asleep` (whoever
            looks stood still since the last look, as all others may have).
        nodes: names of those that have an agent of the run, with or without workers.
        staying: those of them that have an agent which is not about to go.
        begins: restart mode: whether the ranks that run have told no step yet: what they do is to start.
    """

    step: int
    world: int
    generation: int
    phase: str
    members: tuple[MemberView, ...] = ()
    nodes: frozenset[str] = frozenset()
    staying: frozenset[str] = frozenset()
    begins: bool = False


class Watcher(Protocol):
    """Somebody that watches the run and may ask for something to be done.

    `now` is the coordinator's clock: seconds that only grow, of unknown origin. After a takeover the new
    coordinator makes new watchers.
    """

    def heard(self, now: float, report: Report) -> Sequence[Action]:
        """A report has come."""
        ...

    def tick(self, now: float, view: View) -> Sequence[Action]:
        """Some time has passed: about ten times a second."""
        ...
