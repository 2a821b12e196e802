"""sbatch's options, 22.05 to 26.05: which exist, which take a value, and how sbatch itself reads them.

Source: `common_options` in Slurm's src/common/slurm_opt.c on each release branch, read by
`slurm_option_table_create`; `#SBATCH` lines as `_opt_batch_script` and `get_argument` in
src/sbatch/opt.c do; variables from `env_vars` there. pyxis's options are those that its SPANK plugin
registers, as many sites have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from hpctools.errors import UsageError


class Arity(Enum):
    """Whether an option takes a value, in getopt_long's terms."""

    NONE = "no_argument"
    REQUIRED = "required_argument"
    OPTIONAL = "optional_argument"


# long name, or long:short
_REQUIRED = """
    account:A acctg-freq array:a autocomplete batch bb bbf begin:b chdir:D cluster cluster-constraint
    clusters:M comment constraint:C container container-id container-type context core-spec:S
    cores-per-socket cpu-freq cpus-per-gpu cpus-per-task:c deadline delay-boot dependency:d distribution:m
    error:e exclude:x export export-file extra extra-node-info:B gid gpu-bind gpu-freq gpus:G gpus-per-node
    gpus-per-socket gpus-per-task gres gres-flags hint input:i job-name:J kill-on-invalid-dep licenses:L
    mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile:F
    nodelist:w nodes:N ntasks:n ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    ntasks-per-tres open-mode output:o partition:p power prefer priority profile qos:q reservation resources
    segment signal sockets-per-node switches tasks-per-node thread-spec threads-per-core time:t time-min tmp
    tres-bind tres-per-task uid wait-all-nodes wckey wrap
    container-image container-mounts container-workdir container-name container-save container-env
"""
_OPTIONAL = "exclusive get-user-env nice no-kill:k oom-kill-step propagate requeue resv-ports"
_NONE = """
    consolidate-segments contiguous external help:h hold:H ignore-pbs no-requeue overcommit:O oversubscribe:s
    parsable quiet:Q reboot spread-job spread-segments stepmgr test-only usage use-min-nodes verbose:v
    version:V wait:W
    container-mount-home no-container-mount-home container-remap-root no-container-remap-root
    container-entrypoint no-container-entrypoint container-writable container-readonly
"""
# Not in 22.05: an abbreviation that only these make ambiguous still means the older option there.
_LATER = """
    autocomplete container-id container-type consolidate-segments external extra mem-update
    oom-kill-step resources resv-ports segment spread-segments stepmgr tres-bind tres-per-task
    container-image container-mounts container-workdir container-name container-save container-env
    container-mount-home container-remap-root container-entrypoint container-writable container-readonly
    no-container-mount-home no-container-remap-root no-container-entrypoint
"""
_SAME = {"tasks-per-node": "ntasks-per-node", "cluster": "clusters"}

_NAMED_BY_VARIABLE = """
    account acctg-freq batch cluster-constraint clusters constraint container container-id
    container-type core-spec cpus-per-gpu delay-boot distribution error exclusive export get-user-env
    gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint ignore-pbs
    input job-name mem-bind mem-per-cpu mem-per-gpu network no-kill no-requeue open-mode output
    overcommit partition power profile qos requeue reservation signal spread-job spread-segments
    consolidate-segments thread-spec threads-per-core tres-bind tres-per-task use-min-nodes wait
    wait-all-nodes wckey
"""
# As sbatch reads them: where two are for one option, the later one counts.
_ENVIRONMENT = {"SLURM_HINT": "hint"}
_ENVIRONMENT |= {f"SBATCH_{name.upper().replace('-', '_')}": name for name in _NAMED_BY_VARIABLE.split()} | {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_BURST_BUFFER": "bb",
    "SBATCH_CPU_FREQ_REQ": "cpu-freq",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_SEGMENT_SIZE": "segment",
    "SBATCH_TIMELIMIT": "time",
    "SLURM_CLUSTERS": "clusters",
}


def _table() -> tuple[dict[str, Arity], dict[str, str]]:
    arities: dict[str, Arity] = {}
    shorts: dict[str, str] = {}
    for names, arity in ((_REQUIRED, Arity.REQUIRED), (_OPTIONAL, Arity.OPTIONAL), (_NONE, Arity.NONE)):
        for entry in names.split():
            name, _, short = entry.partition(":")
            arities[name] = arity
            if short:
                shorts[short] = name
    return arities, shorts


ARITIES, SHORT_NAMES = _table()


_MOST_OTHER_LINES = 100
"""So many lines that are no comments may stand before an option of PBS or LSF."""


@dataclass(frozen=True)
class Option:
    """One option as somebody gave it.

    Attributes:
        name: its long name; as written when neither sbatch nor we know it.
        value: its value; None when it has none.
        place: where it was given, for messages.
        index: which word of the command line it stands in; -1 when it comes from elsewhere.
    """

    name: str
    value: str | None = None
    place: str = "command line"
    index: int = field(default=-1, compare=False)

    @property
    def word(self) -> str:
        """The option as a single argument of sbatch."""
        if len(self.name) == 1:
            return f"-{self.name}{self.value or ''}"
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


@dataclass(frozen=True)
class CommandLine:
    """A command line as sbatch would read it.

    Attributes:
        options: in order.
        heterogeneous: a word `:` separates the components of a heterogeneous job.
        after_dashes: a word `--` ended the options.
        rest: the words that are no options: a script or a command, and its arguments.
    """

    options: tuple[Option, ...]
    heterogeneous: bool
    after_dashes: bool
    rest: tuple[str, ...]


def read_command_line(
    words: Sequence[str], place: str = "command line", more: frozenset[str] = frozenset()
) -> CommandLine:
    """Read a command line as getopt_long does for sbatch: options end at the first other word or at `--`.

    An option that is not known is taken to have no value, unless it is written `--name=value`.

    Args:
        more: names of options that sbatch does not have and that need a value.

    Raises:
        UsageError: the value of the last option is missing.
    """
    reader = _Reader(words, place, more)
    options = tuple(reader.options())
    return CommandLine(options, reader.heterogeneous, reader.after_dashes, tuple(words[reader.position :]))


class _Reader:
    def __init__(self, words: Sequence[str], place: str, more: frozenset[str]) -> None:
        self.words = list(words)
        self.place = place
        self.more = more
        self.position = 0
        self.heterogeneous = False
        self.after_dashes = False

    def options(self) -> Iterator[Option]:
        while self.position < len(self.words):
            word = self.words[self.position]
            if word == ":":
                self.heterogeneous = True
            elif not word.startswith("-") or word == "-":
                return
            self.position += 1
            if word == "--":
                self.after_dashes = True
                return
            if word.startswith("--"):
                yield self._long(word)
            elif word != ":":
                yield from self._cluster(word)

    def _long(self, word: str) -> Option:
        written, equals, value = word[2:].partition("=")
        name = complete(written)
        index = self.position - 1
        if equals:
            return Option(name, value, self.place, index)
        if name in self.more or ARITIES.get(name) is Arity.REQUIRED or _all_need_a_value(written):
            return Option(name, self._next(word), self.place, index)
        return Option(name, None, self.place, index)

    def _cluster(self, word: str) -> Iterator[Option]:
        index = self.position - 1
        for following, letter in enumerate(word[1:], start=2):
            name = SHORT_NAMES.get(letter, letter)
            arity = ARITIES.get(name, Arity.NONE)
            attached = word[following:]
            if arity is Arity.REQUIRED:
                yield Option(name, attached or self._next(f"-{letter}"), self.place, index)
                return
            if arity is Arity.OPTIONAL:
                yield Option(name, attached or None, self.place, index)
                return
            yield Option(name, None, self.place, index)

    def _next(self, word: str) -> str:
        while self.words[self.position : self.position + 1] == [":"]:
            # sbatch takes every `:` out before it looks for values.
            self.heterogeneous = True
            self.position += 1
        if self.position >= len(self.words):
            raise UsageError(f"{self.place}: option {word} needs a value", "see `hp-submit --help`")
        self.position += 1
        return self.words[self.position - 1]


def complete(written: str) -> str:
    """The full name of a long option from what was written, by getopt_long's rule.

    What is ambiguous or unknown comes back as it was: sbatch will say so.
    """
    candidates = _candidates(written)
    if len(candidates) > 1:
        candidates = [name for name in candidates if name not in _LATER.split()]
    name = candidates[0] if len(candidates) == 1 else written
    return _SAME.get(name, name)


def _candidates(written: str) -> list[str]:
    if written in ARITIES:
        return [written]
    return [name for name in ARITIES if name.startswith(written)]


def _all_need_a_value(written: str) -> bool:
    # Ambiguous, so sbatch will refuse it; but the script is found where sbatch would see it.
    candidates = _candidates(written)
    return bool(candidates) and all(ARITIES[name] is Arity.REQUIRED for name in candidates)


def read_directives(script: str, name: str) -> tuple[CommandLine, ...]:
    """The `#SBATCH` lines of a batch script, each as its own command line; later ones win.

    They end at the first line that is neither empty nor a comment.

    Args:
        script: the script's text.
        name: what to call it in messages.

    Raises:
        UsageError: a quote is not closed, a `:` stands where an option should, or a value is missing.
    """
    lines = []
    for number, line in enumerate(script.split("\n"), start=1):
        if line.startswith("#SBATCH"):
            lines.append(_read_directive(line[len("#SBATCH") :], f"{name} line {number}"))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return tuple(lines)


def foreign_directive(script: str) -> int | None:
    """The first line, from 1, with options of PBS or LSF, which sbatch takes without `--ignore-pbs`; or None.

    Source: `xlate_batch_script` in src/sbatch/xlate.c, which looks past commands, too.
    """
    others = 0
    for number, line in enumerate(script.split("\n"), start=1):
        if line.startswith(("#PBS", "#BSUB")):
            return number
        others += not line.startswith("#")
        if others > _MOST_OTHER_LINES:
            break
    return None


def _read_directive(text: str, place: str) -> CommandLine:
    first = text.split(maxsplit=1)[0].lower() if text.strip() else ""
    if first in ("hetjob", "packjob"):
        return CommandLine((), True, False, ())
    return read_command_line(tuple(split_directive(text, place)), place)


def split_directive(text: str, place: str) -> Iterator[str]:
    """The words of the text after `#SBATCH`, by sbatch's own quoting.

    Raises:
        UsageError: a quote is not closed, or a word starts with `:`.
    """
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if text[position : position + 1] == ":":
            raise UsageError(f"{place}: unexpected `:`", "write options only after #SBATCH")
        word, position = _directive_word(text, position, place)
        if not word:
            return
        yield word


def _directive_word(text: str, position: int, place: str) -> tuple[str, int]:
    word: list[str] = []
    quote = ""
    escaped = False
    while position < len(text) and (quote or not text[position].isspace()):
        letter = text[position]
        if escaped:
            escaped = False
            word.append(letter)
        elif letter == "\\":
            escaped = True
        elif quote and letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
        elif not quote and letter == "#":
            break
        else:
            word.append(letter)
        position += 1
    if quote:
        raise UsageError(f"{place}: unmatched {quote}", "close the quote")
    return "".join(word), position


def directive(option: Option) -> str:
    """The option as a line of a batch script; the inverse of `read_directives`.

    The value holds no line break, which no `#SBATCH` line can carry.
    """
    word = option.word
    if any(letter.isspace() or letter in "\"'\\#" for letter in word) or word.startswith(":"):
        word = '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH {word}"


def read_environment(environment: Mapping[str, str]) -> tuple[Option, ...]:
    """Options that sbatch would take from its input environment variables."""
    return tuple(
        Option(
            name, _value(variable, environment) if ARITIES[name] is not Arity.NONE else None, f"${variable}"
        )
        for variable, name in _ENVIRONMENT.items()
        if variable in environment
    )


def _value(variable: str, environment: Mapping[str, str]) -> str:
    """A variable's value as the option has it: how long to wait for switches is a variable of its own."""
    wait = environment.get("SBATCH_WAIT4SWITCH") if variable == "SBATCH_REQ_SWITCH" else None
    return environment[variable] if wait is None else f"{environment[variable]}@{wait}"
