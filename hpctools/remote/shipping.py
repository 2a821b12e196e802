"""From hp-submit's words on a laptop to a request: what is asked for, and which files go along."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from hpctools.errors import SubmitError, UsageError
from hpctools.remote.names import inner_path, is_id, new_id
from hpctools.remote.names import shown as printable
from hpctools.remote.receiving import MOST_FILES
from hpctools.remote.uploading import uploads
from hpctools.remote.wire import LARGEST_LINE, line_of
from hpctools.slurm.sbatch_options import read_command_line
from hpctools.submit import batch
from hpctools.submit.arrays import parse_array
from hpctools.submit.intent import Intent, Invocation, read_intent, read_invocation
from hpctools.submit.nodes import is_elastic
from hpctools.submit.plain import command_name
from hpctools.submit.script import python_target

OURS = frozenset({"cluster", "upload", "submission"})
SWITCHES = frozenset({"follow"})
_CHUNK = 1 << 20
_LINE = LARGEST_LINE - (1 << 12)
"""Bytes of a request, beside which there is room for its id and the like."""
_SBATCHS_OWN = ("it is sbatch itself that answers --usage and --autocomplete", "ask it on a login node")
_NOT_FROM_AFAR = {
    "wait": ("--wait keeps the line open until the job ends", "use --follow, which survives a closed lid"),
    "clusters": (
        "--clusters asks the cluster's Slurm for another cluster",
        "give that one a name in clusters.yaml",
    ),
    "chdir": ("--chdir leads out of the run folder", "leave it out: the job starts in the run folder"),
    "usage": _SBATCHS_OWN,
    "autocomplete": _SBATCHS_OWN,
    "nodefile": ("--nodefile names a file of this machine", "write the nodes with --nodelist"),
    "export-file": ("--export-file names a file of this machine", "use --export"),
}


@dataclass(frozen=True)
class Wish:
    """hp-submit's words that say where a submission goes.

    Attributes:
        cluster: its name.
        words: all others.
        uploads: files and folders that go along.
        submission: the id of an earlier attempt; empty for a new one.
    """

    cluster: str
    words: tuple[str, ...]
    uploads: tuple[str, ...] = ()
    submission: str = ""
    follow: bool = False


@dataclass(frozen=True)
class LocalFile:
    """A file to send.

    Attributes:
        path: below the run folder.
        source: where it is here; None: `data` is its content.
    """

    path: str
    source: Path | None
    data: bytes = b""

    def read(self, offset: int = 0) -> Iterable[bytes]:
        """Its content from an offset on.

        Raises:
            SubmitError: it cannot be read.
        """
        if self.source is None:
            yield self.data[offset:]
            return
        try:
            with self.source.open("rb") as file:
                file.seek(offset)
                while data := file.read(_CHUNK // 4):
                    yield data
        except OSError as error:
            raise SubmitError(
                f"cannot read {self.source}: {error.strerror}", "make it readable for you"
            ) from None

    def offer(self) -> dict[str, Any]:
        """What the cluster is told of it.

        Raises:
            SubmitError: it cannot be read.
        """
        digest, size = hashlib.sha256(), 0
        for data in self.read():
            digest.update(data)
            size += len(data)
        runs = self.source is not None and os.access(self.source, os.X_OK)
        return {"path": self.path, "size": size, "digest": digest.hexdigest(), "runs": runs}


@dataclass(frozen=True)
class Shipment:
    """A submission, ready to be sent as often as it takes.

    Attributes:
        request: all of it but the files' content.
    """

    id: str
    request: Mapping[str, Any]
    files: tuple[LocalFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each["size"] for each in self.request["files"])

    def renewed(self) -> Shipment:
        """The same under another id: an earlier attempt may not have removed the folder of its trial yet."""
        name = new_id(self.id.rpartition("-")[0])
        return replace(self, id=name, request={**self.request, "id": name})


def read_wish(words: Sequence[str]) -> Wish | None:
    """Where a submission goes; None when it stays here.

    Raises:
        UsageError: an option lacks its value, or has none that makes sense.
    """
    if not any(word == "--cluster" or word.startswith("--cluster=") for word in words):
        return None
    line = read_command_line(words, more=OURS)
    given: dict[str, list[str]] = {}
    taken: set[int] = set()
    for option in line.options:
        name, joined, value = words[option.index].removeprefix("--").partition("=")
        if name in OURS and words[option.index].startswith("--"):
            given.setdefault(name, []).append(value if joined else option.value or "")
            taken |= {option.index} if joined else {option.index, option.index + 1}
        elif name in SWITCHES and not joined:
            given[name] = ["yes"]
            taken.add(option.index)
    if "cluster" not in given:
        return None  # it is the script's own
    if empty := next((name for name, values in given.items() if "" in values), None):
        # `--upload "$DATA"` would send all of the present folder, `--submission "$ID"` make a second job.
        raise UsageError(f"--{empty} is given an empty name", "is its variable set? Name one or leave it out")
    submission = given.get("submission", [""])[-1]
    if submission and not is_id(submission):
        raise UsageError(f"--submission {submission!r} is no submission's id", "leave it out")
    return Wish(
        cluster=given["cluster"][-1],
        words=tuple(word for index, word in enumerate(words) if index not in taken),
        uploads=tuple(given.get("upload", ())),
        submission=submission,
        follow="follow" in given,
    )


def pack(
    wish: Wish,
    python: str,
    cwd: Path,
    standard_input: Callable[[], bytes | None],
    tell: Callable[[str], None],
) -> Shipment:
    """Read what is to be sent, and say how it is called there.

    Args:
        python: what runs a Python file that is given as the script.
        tell: says what was understood in a way that a person may not expect.

    Raises:
        UsageError, SubmitError: as hp-submit's own; or a file cannot be sent.
    """
    words = _with_python(wish.words, python, cwd, tell)
    invocation = read_invocation(words)
    # Variables of this machine say nothing of the cluster; a script is looked for here only.
    intent = read_intent(invocation, environment={}, cwd=cwd, standard_input=standard_input)
    _refuse_what_stays_here(intent)
    if wish.follow and intent.effective("array") is not None:
        raise UsageError("--follow is not for arrays", "submit it, then `hp-logs --follow --task N ID`")
    script, options, command = _script(intent, invocation)
    files = _files(wish, intent, script, cwd, tell)
    shown = [f"--{each}" for each in ("dry-run", "json") if {"dry-run", each} <= invocation.flags]
    request = {
        "op": "submit",
        "options": [*shown, *_with_policy(options, intent)],
        "script": script.path if script else "",
        "arguments": list(intent.arguments),
        "command": command,
        "files": [each.offer() for each in files],
        "trial": bool(shown) or intent.effective("test-only") is not None,
    }
    job = intent.effective("job-name") or PurePosixPath(_name(intent, script)).name
    request["runs"] = {"name": job, "count": _runs(intent)} if intent.is_elastic else {}
    _refuse_a_long_request(request)
    name = wish.submission or new_id(job)
    return Shipment(name, {**request, "id": name}, tuple(files))


def _runs(intent: Intent) -> int:
    """How many elastic runs are asked for; 0 where hp-submit will refuse the array."""
    asked = [option for option in intent.all_options if option.name == "array"]
    try:
        return len(parse_array(asked[-1].value or "", asked[-1].place).indices) if asked else 1
    except SubmitError:
        return 0


def _refuse_a_long_request(request: Mapping[str, Any]) -> None:
    """A request is one line, and of one that is too long the cluster's side hears only that it has no end."""
    if (size := len(line_of(request))) > _LINE:
        told = f"{len(request['files'])} files' names, options and arguments take {size / 2**20:.1f} MiB"
        raise UsageError(
            f"{told}, and a submission may have {LARGEST_LINE >> 20} MiB of them",
            "pack the files: tar czf data.tar.gz FOLDER",
        )


def _with_python(
    words: Sequence[str], python: str, cwd: Path, tell: Callable[[str], None]
) -> tuple[str, ...]:
    """`train.py --nodes 2:8`: a Python file is no batch script, so it is the command that Python runs.

    A range of nodes behind it is hp-submit's: sbatch's options end at a batch script, and this is none. One
    that begins with `#!` could be a batch script; with a range behind it, it is none either.
    """
    line = read_command_line(words, more=frozenset({"elastic-policy", "elastic-mode", "resume"}))
    if line.after_dashes or not line.rest or not line.rest[0].endswith(".py"):
        return tuple(words)
    options, rest = tuple(words[: len(words) - len(line.rest)]), list(line.rest)
    size = _take_range(rest)
    begins = _begins(cwd / rest[0])
    if begins is None or (begins.startswith(b"#!") and not (size and _PYTHON.match(begins))):
        return tuple(words)
    rest[0] = _from_here(rest[0], cwd)
    if size and _DIRECTIVE.search(begins):
        raise UsageError(
            f"{rest[0]} has #SBATCH lines, so --nodes {size} behind it would be its own",
            f"write it before: --nodes {size} {rest[0]}",
        )
    if size:
        tell(f"--nodes {size} is taken for hp-submit's own, not for {rest[0]}'s")
    return (*options, *([f"--nodes={size}"] if size else []), "--", python, *rest)


def _from_here(program: str, cwd: Path) -> str:
    """A program as it lies below the present folder, which is how it will lie in the run folder."""
    if not Path(program).is_absolute():
        return program
    try:
        return str((Path(program).parent.resolve() / Path(program).name).relative_to(cwd.resolve()))
    except ValueError:
        folder = Path(program).parent
        raise UsageError(
            f"{program} is a path of this machine", f"submit it from its folder: cd {folder}"
        ) from None


_PYTHON = re.compile(rb"#![^\n]*\bpython[0-9.]*\b")
_DIRECTIVE = re.compile(rb"^#SBATCH\s", re.MULTILINE)
_BEGINNING = 1 << 16


def _take_range(rest: list[str]) -> str:
    """The first range of nodes behind a program, taken out of its words; empty when there is none."""
    for index, word in enumerate(rest[1:], start=1):
        if found := re.fullmatch(r"--nodes=(.+)", word):
            size, used = found[1], 1
        else:
            size, used = "".join(rest[index + 1 : index + 2]), 2
            if word not in ("--nodes", "-N"):
                continue
        if is_elastic(size):
            del rest[index : index + used]
            return size
    return ""


def _begins(path: Path) -> bytes | None:
    """How a file begins; None when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_BEGINNING)
    except OSError:
        return None


def _refuse_what_stays_here(intent: Intent) -> None:
    for name, (why, remedy) in _NOT_FROM_AFAR.items():
        if intent.effective(name) is not None:
            raise UsageError(why, remedy)


def _script(intent: Intent, invocation: Invocation) -> tuple[LocalFile | None, list[str], list[str]]:
    """The batch script as a file of the run folder, by which Slurm knows the job, options, command."""
    options, command = list(invocation.words), list(intent.command)
    for name, value in intent.settings.items():
        if name != "elastic-policy":
            options.append(f"--{name}={value}")
    if intent.script is not None:
        data = intent.script.text.encode("utf-8", "surrogateescape")
        # sbatch calls a job from standard input `sbatch`.
        name = intent.script.path.name if intent.script.path else "sbatch"
        return LocalFile(name, None, data), options, []
    if command and not intent.is_elastic:
        if intent.effective("job-name") is None:
            options.append(f"--job-name={command_name(command)}")
        return (
            LocalFile("command.sh", None, batch.wrapped(tuple(command)).encode("utf-8", "surrogateescape")),
            options,
            [],
        )
    if not command:  # --wrap, which sbatch makes a script of in this very way
        wrap = intent.effective("wrap") or ""
        text = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{wrap}\n\n"
        return (
            LocalFile("wrap", None, text.encode("utf-8", "surrogateescape")),
            _without_wrap(options),
            [],
        )
    return None, options, command


def _without_wrap(options: Sequence[str]) -> list[str]:
    words: set[int] = set()
    for each in read_command_line(options).options:
        if each.name == "wrap":  # written out or cut short: --wra
            words |= {each.index} if "=" in options[each.index] else {each.index, each.index + 1}
    return [word for index, word in enumerate(options) if index not in words]


def _with_policy(options: Sequence[str], intent: Intent) -> list[str]:
    policy = intent.settings.get("elastic-policy")
    return [*options, *([f"--elastic-policy={PurePosixPath(policy).name}"] if policy else [])]


def _name(intent: Intent, script: LocalFile | None) -> str:
    if intent.command:
        return command_name(intent.command)
    return script.path if script else "job"


def _files(
    wish: Wish, intent: Intent, script: LocalFile | None, cwd: Path, tell: Callable[[str], None]
) -> list[LocalFile]:
    found = [script] if script else []
    if policy := intent.settings.get("elastic-policy"):
        found.append(LocalFile(PurePosixPath(policy).name, cwd / policy))
    kind, target = _python_target(intent.command) if intent.command else ("", "")
    if kind == "file" and (cwd / target).is_file():
        if Path(target).is_absolute():
            tell(f"{target} is not sent: it is run as it lies on the cluster")
        else:
            found.append(LocalFile(str(inner_path(os.path.normpath(target))), cwd / target))
    for word in wish.uploads:
        found += [LocalFile(path, source) for path, source in uploads(word, cwd, tell)]
    _refuse_lost(found)
    by_path = {each.path: each for each in reversed(found)}
    if len(by_path) > MOST_FILES:
        raise UsageError(
            f"{len(by_path)} files are too many to send", "pack them: tar czf data.tar.gz FOLDER"
        )
    return list(reversed(by_path.values()))


def _python_target(command: tuple[str, ...]) -> tuple[str, str]:
    """As `python_target`; also of what torchrun is to start."""
    found = python_target(command)
    if found[0] in ("file", "c"):
        return found
    from hpctools.submit.torchrun import started  # what most submissions do not need

    return python_target(started(command))


def _refuse_lost(files: Sequence[LocalFile]) -> None:
    """Two files cannot have one name there; the same file may be named twice."""
    first: dict[str, LocalFile] = {}
    for file in files:
        other = first.setdefault(file.path, file)
        if other.source != file.source and other.offer()["digest"] != file.offer()["digest"]:
            raise UsageError(
                printable(
                    f"{other.source or 'the script'} and {file.source} would both be {file.path} there"
                ),
                "rename one of them, or name a folder with it in it: --upload FOLDER",
            )
