"""What the researcher asked for: the command line and the script, read but not yet judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpctools.errors import UsageError
from hpctools.slurm.sbatch_options import (
    CommandLine,
    Option,
    read_command_line,
    read_directives,
    read_environment,
)
from hpctools.submit.nodes import NodeSizes, is_elastic, parse_sizes
from hpctools.submit.script import Script, check_script, find_script, read_script

OUR_FLAGS = frozenset({"dry-run", "json", "debug", "yes"})
OUR_VALUES = frozenset({"elastic-policy", "elastic-mode", "resume"})


@dataclass(frozen=True)
class Invocation:
    """hp-submit's command line, split into what is ours and what is sbatch's.

    Attributes:
        flags: ours that were given, and `help` and `version`.
        words: the words of sbatch's options, as written.
        line: the whole line as sbatch reads it.
        settings: values of those of our options that have one, by name.
    """

    flags: frozenset[str]
    words: tuple[str, ...]
    line: CommandLine
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Intent:
    """A submission as it was asked for.

    Attributes:
        words: sbatch's options as written on the command line.
        options: the same, read.
        directives: the script's #SBATCH lines, read.
        environment: options that sbatch takes from its environment variables.
        heterogeneous: the job has several components.
        script: the batch script; None when a command or `--wrap` was given.
        script_word: how the script was named on the command line; empty for standard input.
        arguments: the script's arguments.
        command: the words after `--`.
        nodes: the sizes of an elastic run; None when none were asked for.
        cwd: the folder of the submission.
        settings: values of hp-submit's own options, by name: `elastic-policy` (a file), `elastic-mode`,
            `resume` (a run).
        awaited: what the run of each index of an array waits for, in the place of `--dependency`; empty where
            all wait for the same.
    """

    words: tuple[str, ...]
    options: tuple[Option, ...]
    directives: tuple[CommandLine, ...]
    environment: tuple[Option, ...]
    heterogeneous: bool
    script: Script | None
    script_word: str
    arguments: tuple[str, ...]
    command: tuple[str, ...]
    nodes: NodeSizes | None
    cwd: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    awaited: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_elastic(self) -> bool:
        """Whether an elastic run is asked for, by sizes or by a policy that has them."""
        return self.nodes is not None or "elastic-policy" in self.settings

    @property
    def script_options(self) -> tuple[Option, ...]:
        """The options of all #SBATCH lines, in order."""
        return tuple(option for line in self.directives for option in line.options)

    @property
    def all_options(self) -> tuple[Option, ...]:
        """All options, the weakest first: script, environment, command line."""
        return (*self.script_options, *self.environment, *self.options)

    def effective(self, name: str) -> str | None:
        """The value that sbatch would take for an option; None when it was not given."""
        given = [option.value or "" for option in self.all_options if option.name == name]
        return given[-1] if given else None

    @property
    def wants_whole_nodes(self) -> bool:
        """Whether nodes are asked for with all that they have: `--exclusive`, but for `=user` and `=mcs`."""
        kind = self.effective("exclusive")
        return kind is not None and kind.lower() not in ("user", "mcs", "oversubscribe")


def read_invocation(argv: Sequence[str]) -> Invocation:
    """Split hp-submit's command line.

    Raises:
        UsageError: the last option lacks its value.
    """
    line = read_command_line(argv, more=OUR_VALUES)
    ours = {option.index for option in line.options if option.name in OUR_FLAGS and option.value is None}
    set_by_us = [option for option in line.options if option.name in OUR_VALUES]
    for option in set_by_us:
        ours |= {option.index} if "=" in argv[option.index] else {option.index, option.index + 1}
    end = len(argv) - len(line.rest) - line.after_dashes
    words = tuple(word for index, word in enumerate(argv[:end]) if index not in ours)
    flags = frozenset(
        option.name for option in line.options if option.name in OUR_FLAGS | {"help", "version"}
    )
    return Invocation(flags, words, line, {option.name: option.value or "" for option in set_by_us})


def read_intent(
    invocation: Invocation,
    *,
    environment: Mapping[str, str],
    cwd: Path,
    standard_input: Callable[[], bytes | None],
) -> Intent:
    """Read the script and put everything together.

    Args:
        standard_input: reads it to its end; None when it is a terminal.

    Raises:
        UsageError: neither a script nor a command, a range of nodes that is none, a word about an elastic
            run where none is asked for, or an option of ours in an #SBATCH line.
        SubmitError: the script is missing or is no batch script.
    """
    line = invocation.line
    script = _script(line, environment, cwd, standard_input)
    directives = read_directives(script.text, script.name) if script else ()
    _check_directives(directives)
    options = tuple(option for option in line.options if option.name not in OUR_FLAGS | OUR_VALUES)
    command = line.rest if line.after_dashes else ()
    intent = Intent(
        words=invocation.words,
        options=options,
        directives=directives,
        environment=read_environment(environment),
        heterogeneous=line.heterogeneous or any(each.heterogeneous for each in directives),
        script=script,
        script_word=line.rest[0] if line.rest and not command else "",
        arguments=() if command else line.rest[1:],
        command=command,
        nodes=_nodes(options, directives, "elastic-policy" in invocation.settings),
        cwd=cwd,
        settings=invocation.settings,
    )
    _check_wrap(intent)
    if invocation.settings.get("elastic-policy") == "":
        raise UsageError("--elastic-policy is given an empty name", "name a policy in YAML, or leave it out")
    mode = invocation.settings.get("elastic-mode", "live")
    if mode not in ("live", "restart"):
        raise UsageError(f"--elastic-mode={mode}: there is no such mode", "give live or restart")
    for name in invocation.settings:
        if not intent.is_elastic:
            raise UsageError(
                f"--{name} is for an elastic run", "say how many nodes it may have: --nodes MIN:MAX"
            )
    return intent


def _check_wrap(intent: Intent) -> None:
    """What sbatch refuses too, which is not given `--wrap` of an elastic run."""
    if intent.is_elastic and intent.script is None and intent.script_word:
        raise UsageError(
            f"--wrap has the whole command, and {intent.script_word!r} stands behind it",
            "put quotes around all of the command: --wrap 'python train.py --lr 1'",
        )


def _check_directives(directives: tuple[CommandLine, ...]) -> None:
    """What only hp-submit knows cannot stand where sbatch reads it, too."""
    for option in (option for line in directives for option in line.options):
        if option.name in OUR_VALUES:
            raise UsageError(
                f"{option.place}: --{option.name} is no option of sbatch's",
                f"give it on the command line: hp-submit --{option.name}={option.value or '...'} ...",
            )


def _script(
    line: CommandLine,
    environment: Mapping[str, str],
    cwd: Path,
    standard_input: Callable[[], bytes | None],
) -> Script | None:
    wrapped = any(option.name == "wrap" for option in line.options)
    if line.after_dashes:
        if not line.rest or wrapped:
            raise UsageError("a command belongs after --, and no --wrap before it", "see `hp-submit --help`")
        return None
    if line.rest:
        # With --wrap too: sbatch itself says that it takes no arguments then, and `_check_wrap` of a run.
        return None if wrapped else read_script(find_script(line.rest[0], environment, cwd))
    if wrapped:
        return None
    data = standard_input()
    if data is None:
        raise UsageError(
            "nothing to submit: no script and no command",
            "hp-submit [options] script [args], or hp-submit [options] -- command args",
        )
    return check_script("standard input", data)


def _nodes(
    options: tuple[Option, ...], directives: tuple[CommandLine, ...], policy: bool
) -> NodeSizes | None:
    asked = _last_nodes(options)
    written = _last_nodes(tuple(option for line in directives for option in line.options))
    if asked and is_elastic(asked.value or ""):
        return parse_sizes(asked.value or "", asked.place)
    elastic = bool(written and is_elastic(written.value or ""))
    if asked and (elastic or policy):
        return _fixed(asked, "--elastic-policy" if policy else f"{written.place if written else ''}")
    return parse_sizes(written.value or "", written.place) if written and elastic else None


def _fixed(asked: Option, elastic: str) -> NodeSizes:
    """A run of one size: the script was written for agents, so it keeps them."""
    value = asked.value or ""
    if value.isdecimal() and value.isascii():
        return parse_sizes(f"{value}:{value}", asked.place)
    raise UsageError(
        f"--nodes {value} does not fit {elastic}, which asks for an elastic run",
        f"give --nodes MIN:MAX, or change {elastic}",
    )


def _last_nodes(options: tuple[Option, ...]) -> Option | None:
    return next((option for option in reversed(options) if option.name == "nodes"), None)
