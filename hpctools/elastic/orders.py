"""What the coordinator has told a worker to do, as the training's thread finds it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.elastic.group import Task
from hpctools.elastic.protocol import EXPELLED, Message
from hpctools.elastic.session import Restorable

REST_SECONDS = 5.0
AGAIN_SECONDS = 0.1


@dataclass(frozen=True)
class Commit:
    """The order to be part of a generation, or to leave before it.

    Attributes:
        agree: whether all switch after the same step, which their exchange confirms; else at once.
        at: after how many rounds, unless one of us hears of it too late; 0: as soon as all have heard.
        leave, stay: whether we are not in it, and whether we stand by instead of going.
        report: whether we measure the resize.
        send_to: ranks that receive the state from us.
        receive_from: the rank that gives it to us.
        moves: whether anybody receives it; where nobody does, nobody is asked who has it.
        place: where in the data the generation begins; None: where we are, or it is not known.
        arrived: when the order came, seconds of the monotonic clock.
    """

    generation: int
    agree: bool
    at: int = 0
    leave: bool = False
    stay: bool = False
    report: bool = False
    send_to: tuple[int, ...] = ()
    receive_from: int | None = None
    moves: bool = True
    place: Mapping[str, int] | None = None
    arrived: float = 0.0


@dataclass(frozen=True)
class Seat:
    """Our place in a generation that was formed, as `Group` has it once it is linked.

    Attributes:
        number: the generation.
        rank, world: our place and how many there are.
    """

    number: int
    rank: int
    world: int


def refusal(order: Message, step: int) -> dict[str, Any]:
    """The answer to an order to save when the training saves by itself."""
    named = {"order": order["order"]} if "order" in order else {}
    return {"step": step, "why": "the training saves by itself", **named}


class Orders:
    """All orders so far; whoever notes and reads them holds the session's lock.

    Attributes:
        commits: by generation.
        recover: the newest generation to park for; 0: none yet.
        roll_backs: how far to go back before a generation, by generation.
        save: the last order to save that was not carried out.
        agreeing: the newest order to switch when all do; None: there was none.
        seen: the highest number of a generation that we were told of.
        end: with which words the process is to end; None: it is not.
        finished: whether the training is complete for everyone.
        last: why the state is saved with which the run ends; empty: it does not end so.
        rests: whether that is saved.
        saves: whether the training saves by itself, as we told; None: we did not.
        prepared: where a generation will begin that lets us in, until somebody has looked.
        seat: in the generation that was formed last.
    """

    def __init__(self) -> None:
        self.commits: dict[int, Commit] = {}
        self.recover = 0
        self.roll_backs: dict[int, dict[str, Any]] = {}
        self.save: Message | None = None
        self.agreeing: Commit | None = None
        self.seen = 0
        self.end: str | None = None
        self.finished = False
        self.last = ""
        self.rests = False
        self.saves: bool | None = None
        self.prepared: Message | None = None
        self.seat = Seat(0, 0, 1)

    def note(self, message: Message) -> None:
        """An order has come; one that a later release would give is passed over."""
        kind, fields = message["kind"], {key: value for key, value in message.items() if key != "kind"}
        self.seen = max(self.seen, int(message.get("generation", 0)))
        if kind == "form":
            self._form(fields)
        elif kind == "park":
            self._park(fields)
        elif kind == "commit":
            self._commit(fields)
        elif kind == "prepare":
            self.prepared = fields
        elif kind in ("release", "stop"):
            self.end = self.end or ""
        elif kind == "expelled":
            self.end, self.save = self.end or EXPELLED, None  # what it has is of no use to anybody
        elif kind == "finish":
            self.finished = True
        elif kind == "save":
            self.save = fields
            self.last = str(fields["why"]) if fields.get("ends") else self.last

    def standing(self, generation: int) -> dict[str, Any]:
        """What a coordinator that we come to has to know of them; `generation`: the one that we are in."""
        last = max(self._later(generation), default=None)
        return {
            "seen": self.seen,
            "pending": max([self.recover, *self.commits]) > generation,
            "finished": self.finished,
            "roll_back": {} if last is None else {"generation": last, **self.roll_backs[last]},
            "saves": self.saves,
        }

    def going_back(self, generation: int) -> list[dict[str, Any]]:
        """The roll backs since that generation, in order; a former coordinator may have begun one."""
        return [self.roll_backs[number] for number in sorted(self._later(generation))]

    def _later(self, generation: int) -> list[int]:
        return [number for number in self.roll_backs if number > generation]

    def ready_for(self, completed: int) -> int:
        """The highest generation that we may switch to after the next round when all others may, too."""
        commit = self.agreeing
        return commit.generation if commit is not None and completed + 1 >= commit.at else 0

    def told(self, kind: str, why: object, by_itself: bool | None = None) -> None:
        """The coordinator was told something by us, perhaps what came of an order to save."""
        self.rests |= kind == "saved" and bool(self.last) and why == self.last
        self.saves = by_itself if kind == "saving" else self.saves

    def can_save(self, *, has_state: bool) -> bool:
        """Whether an order to save can be carried out: without a state of use it waits until there is one."""
        return self.save is not None and has_state

    def ask_again(self, state: object, *, has_state: bool) -> float | None:
        """When to ask again a training that has put an order to save off, seconds; None: it has not."""
        put_off = has_state and isinstance(state, Restorable) and state._has_put_off()
        return AGAIN_SECONDS if put_off and self.end is None else None

    def rest(self, changed: threading.Condition, standing: int) -> None:
        """Wait for the word to end: whatever is done after what was saved last is done in vain.

        Not for long, since who wanted that may be gone, nor when the generation `standing` is over.
        """
        if self.rests:
            self.rests = False
            with changed:
                changed.wait_for(lambda: self.end is not None or self.recover > standing, REST_SECONDS)

    def admission(self, standing: int) -> int | None:
        """The newest generation that lets us in; `standing`: the one that we are in, or have left last."""
        newest = max((each.generation for each in self.commits.values() if not each.agree), default=0)
        return newest if newest > standing and newest >= self.recover else None

    def let_end(self, task: Task[Any], changed: threading.Condition, until: float) -> None:
        """Although we are called away, wait until then for what all members may have begun.

        One that is not called away, since it was given up, completes the step then, and is in the next one:
        all others would do both again.
        """
        with changed:
            changed.wait_for(lambda: task.finished or self.end is not None, until - time.monotonic())

    def _form(self, fields: Message) -> None:
        self.seat = Seat(int(fields["generation"]), int(fields["rank"]), int(fields["world"]))
        if fields["recover"]:
            self._park(fields)

    def _park(self, fields: Message) -> None:
        generation = int(fields["generation"])
        if "roll_back" in fields:
            self.roll_backs[generation] = fields["roll_back"]
        self.recover = max(self.recover, generation)

    def _commit(self, fields: Message) -> None:
        send_to = tuple(fields.pop("send_to", ()))
        # A coordinator of a later release may say more, as in any message.
        known = {each.name: fields[each.name] for each in dataclasses.fields(Commit) if each.name in fields}
        commit = Commit(**known, send_to=send_to, arrived=time.monotonic())
        self.commits[commit.generation] = commit
        if commit.agree:
            self.agreeing = commit
