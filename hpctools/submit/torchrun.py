"""A command that starts torchrun, as an elastic run in restart mode: the agent does torchrun's work.

Its own options are read with argparse's rules and the table of `torch/distributed/run.py` (torch 2.4 to 2.13)
and of `hyperpodrun`, HyperPod's variant; what they ask for is done by the run, or is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from hpctools.errors import SubmitError
from hpctools.python_command import FILE, MODULE, python_command
from hpctools.submit import inheritance
from hpctools.submit.intent import Intent
from hpctools.submit.interpreter import interpreter_of
from hpctools.submit.wrappers import MODULES, is_elsewhere, program_start

WORKERS = "workers-per-node"
RESTARTS = "max-restarts"
ROLE = "role"
DROPPED = "torchrun-dropped"
"""Those of torchrun's options that were given and have no effect, with blanks between."""

_PROGRAMS = ("torchrun", "hyperpodrun")
# What the run does itself, as every torchrun command has to say some of it: membership and rendezvous.
_OURS = """
    nnodes rdzv-backend rdzv-endpoint rdzv-id rdzv-conf node-rank master-addr master-port local-addr
    server-host server-port
"""
_OUTPUT = (
    "log-dir",
    "redirects",
    "tee",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "logs-specs",
)
_GRACE = ("shutdown-timeout",)
_WITHOUT_EFFECT = (
    *_OUTPUT,
    *_GRACE,
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "signals-to-handle",
)
_INSTEAD = {
    _OUTPUT: "the first rank's output is the job's, and the others' is in logs/ of the run folder",
    _GRACE: "gracefulShutdownTimeoutInSeconds in the policy file says how long ranks may take to end",
}
_VALUES = frozenset((*_OURS.split(), *_WITHOUT_EFFECT, "nproc-per-node", RESTARTS, ROLE))
_FLAGS = frozenset(("standalone", "module", "no-python"))
_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}


@dataclass(frozen=True)
class Launch:
    """What torchrun would start on each node.

    Attributes:
        command: of each worker.
        workers: `--nproc-per-node`; empty when it was not given.
        restarts: `--max-restarts`; empty when it was not given.
        role: `--role`; the same.
        dropped: names of options that were given and have no effect.
    """

    command: tuple[str, ...]
    workers: str = ""
    restarts: str = ""
    role: str = ""
    dropped: tuple[str, ...] = ()


def unwrapped(intent: Intent) -> Intent:
    """The intent without torchrun: its script as the command, in restart mode, with its settings.

    An intent that starts no torchrun, or that asks for another mode, is left as it is.

    Raises:
        SubmitError: torchrun is asked for something that an elastic run does not do.
    """
    words = intent.command
    if not words or intent.settings.get("elastic-mode", "restart") != "restart":
        return intent
    launch = _launch(words)
    if launch is None:
        return intent
    settings = {**intent.settings, "elastic-mode": "restart"}
    if launch.workers:
        settings[WORKERS] = _workers(intent, launch.workers)
    if launch.restarts:
        settings[RESTARTS] = _number(RESTARTS, launch.restarts)
    stated = {ROLE: launch.role, DROPPED: " ".join(launch.dropped)}
    settings |= {name: value for name, value in stated.items() if value}
    return replace(intent, command=launch.command, settings=settings)


def without_effect(intent: Intent) -> str | None:
    """Which of torchrun's options do nothing in a run, and what does it instead; None: none was given.

    Args:
        intent: as `unwrapped` returns it.
    """
    dropped = intent.settings.get(DROPPED, "").split()
    if not dropped:
        return None
    instead = [said for names, said in _INSTEAD.items() if not set(names).isdisjoint(dropped)]
    named, verb = ", ".join(f"--{name}" for name in dropped), "has" if len(dropped) == 1 else "have"
    return "; ".join(
        [f"torchrun's {named} {verb} no effect, since the run starts the ranks itself", *instead]
    )


def with_restarts(intent: Intent, recovery: Mapping[str, Any]) -> dict[str, Any]:
    """The policy's recovery sections, with torchrun's `--max-restarts` where they leave it open."""
    if RESTARTS not in intent.settings:
        return dict(recovery)
    policy = dict(recovery.get("runPolicy") or {})
    stated = dict(policy.get("restartPolicy") or {})
    if stated.get("maxFullJobRestarts") is None:  # also a key with nothing behind it
        stated["maxFullJobRestarts"] = int(intent.settings[RESTARTS])
    policy["restartPolicy"] = stated
    return {**recovery, "runPolicy": policy}


def started(words: tuple[str, ...]) -> tuple[str, ...]:
    """What a command that starts torchrun has it start; any other, and what cannot be read, as it is."""
    try:
        launch = _launch(words)
    except SubmitError:
        return words
    return launch.command if launch else words


def _launch(words: tuple[str, ...]) -> Launch | None:
    start = program_start(words, passing=True)
    launch = _direct(words[start:], is_wrapped=is_elsewhere(words[:start]))
    return launch and replace(launch, command=(*words[:start], *launch.command))


def _direct(words: tuple[str, ...], *, is_wrapped: bool) -> Launch | None:
    if PurePath(words[0]).name in _PROGRAMS:
        return _read(words[0], (interpreter_of(words[0], is_wrapped=is_wrapped),), words[1:])
    if words[0] in ("-m", "--module"):  # of a wrapper
        return _read(words[1], ("python",), words[2:])
    if (python := python_command(words)) is None:
        return None
    is_file = (
        python.kind == FILE and PurePath(python.target).name in _PROGRAMS
    )  # python $(which torchrun) ...
    if is_file or (python.kind == MODULE and re.fullmatch(MODULES, python.target)):
        return _read(python.target, (python.interpreter, *python.flags), python.arguments)
    return None


def _read(program: str, python: tuple[str, ...], words: tuple[str, ...]) -> Launch:
    given: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        name, value = _option(program, rest.pop(0), rest)
        given[name] = value
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if not rest:
        raise SubmitError(f"{program} is given no script", "write it after torchrun's options")
    start = () if "no-python" in given else (*python, "-m") if "module" in given else python
    workers, restarts, role = (given.get(name, "") for name in ("nproc-per-node", RESTARTS, ROLE))
    dropped = tuple(name for name in _WITHOUT_EFFECT if name in given)
    return Launch((*start, *rest), workers, restarts, role, dropped)


def _option(program: str, word: str, rest: list[str]) -> tuple[str, str]:
    """One option's name with hyphens and its value, which may be the next word."""
    stem, equals, value = word.partition("=")
    name = _SHORT.get(stem, stem.removeprefix("--").replace("_", "-"))
    if not word.startswith("--") and stem[:2] in _SHORT and len(stem) > 2:
        name, equals, value = _SHORT[stem[:2]], "=", word[2:]
    if name in _FLAGS and not equals:
        return name, ""
    if name not in _VALUES or not (equals or rest):
        raise SubmitError(
            f"{program}: {word} is nothing that an elastic run can do",
            "leave it out, or submit the job with a fixed --nodes",
        )
    return name, value if equals else rest.pop(0)


def _workers(intent: Intent, value: str) -> str:
    if value in ("gpu", "auto"):
        gpus = inheritance.gpus_per_node(intent)
        if gpus is None:
            raise SubmitError(
                f"--nproc-per-node={value}: nothing says how many GPUs a node has",
                "give a number, or --gpus-per-node=N to hp-submit",
            )
        return str(gpus)
    workers = _number("nproc-per-node", value)
    tasks = intent.effective("ntasks-per-node")
    if tasks is not None and tasks not in ("1", workers):
        raise SubmitError(
            f"--ntasks-per-node={tasks} and torchrun's --nproc-per-node={value} contradict each other",
            "leave out one of them",
        )
    return workers


def _number(name: str, value: str) -> str:
    least = 0 if name == RESTARTS else 1
    if not value.isdecimal() or int(value) < least:
        raise SubmitError(f"--{name}={value} is no number", f"give {least} or more")
    return value
