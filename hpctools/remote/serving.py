"""The cluster's side of `--cluster`: one request on standard input, answers on standard output.

What a submission does not need is imported late.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import select
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hpctools
from hpctools.errors import HpctoolsError, RemoteError, UsageError
from hpctools.remote import failures, submissions
from hpctools.remote.failures import SAME_RELEASE, Unmade
from hpctools.remote.local_submit import HereSlurm, Program, listen
from hpctools.remote.lookup import lookup, with_job
from hpctools.remote.names import RECORD_FOLDER, inner_path, is_id
from hpctools.remote.once import Once, command_words
from hpctools.remote.receiving import Reception, read_offers
from hpctools.remote.run_names import with_runs
from hpctools.remote.submissions import Record, Submission, as_json
from hpctools.remote.wire import VERSION, Message, Wire, WireClosed, WireError

if TYPE_CHECKING:
    from hpctools.remote.job_output import Outputs

SILENT_SECONDS = 15.0
"""A laptop that sends nothing for so long is gone; its next connection goes on."""
_BEAT_SECONDS = 5.0
STATE_SECONDS = 5.0
"""Between two looks at an array of which nothing has begun: kind to slurmctld."""
_LONG_AGO = 30 * 86400.0
"""Further back Slurm is not asked for what may have been submitted."""
_LISTED = 50
_LISTED_TOGETHER = 200
"""Files in a line of a list: of the longest paths, which JSON makes six times as long, five megabytes."""


@dataclass(frozen=True)
class Programs:
    """The commands that a laptop can start here, each by its main."""

    submit: Program
    status: Program
    cancel: Program


def serve(programs: Programs) -> int:
    """Answer one request; return the exit code. What prints to standard output goes to standard error."""
    out = os.dup(1)
    os.dup2(2, 1)
    wire = Wire(_receive, _sender(out))
    try:
        wire.greet()
        with _heartbeat(wire):
            _answer(wire, programs)
    except WireError:
        return 1  # there is nobody to tell
    return 0


def _receive(size: int) -> bytes:
    ready, _, _ = select.select([0], [], [], SILENT_SECONDS)
    if not ready:
        raise WireClosed("nothing came for too long")
    return os.read(0, size)


def _sender(descriptor: int) -> Callable[[bytes], None]:
    lock = threading.Lock()

    def send(data: bytes) -> None:
        with lock:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(descriptor, view) :]
            except OSError:
                raise WireClosed("the laptop is gone") from None

    return send


@contextlib.contextmanager
def _heartbeat(wire: Wire) -> Iterator[None]:
    """Say from time to time that we are here, so that a laptop knows a slow cluster from a dead line."""
    over = threading.Event()

    def beat() -> None:
        with contextlib.suppress(WireError):
            while not over.wait(_BEAT_SECONDS):
                wire.put({"alive": True})

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _answer(wire: Wire, programs: Programs) -> None:
    """Answer a request; whatever goes wrong is told: silence means to a laptop that the line broke."""
    request = Message({})
    try:
        request = wire.get()
        if request.get("version") != VERSION:
            raise RemoteError(
                f"the cluster has hpctools {hpctools.__version__}, which does not know your requests",
                "install the same release on your laptop",
            )
        done = _done(request, wire, programs)
        wire.put({"result": done})
        _note_outputs(request, done)
    except WireClosed:
        raise
    except (Unmade, WireError, HpctoolsError, OSError) as error:
        wire.put(failures.answer(error, request))


def _note_outputs(request: Message, done: Mapping[str, Any]) -> None:
    """Once the answer is on its way: nobody waits for it."""
    if request.get("op") == "submit" and not request.get("trial") and not done["before"]:
        from hpctools.remote import job_output

        job_output.note(Submission(Path(done["folder"])), done["job_id"])


def _done(request: Message, wire: Wire, programs: Programs) -> Mapping[str, Any]:
    operations: dict[str, Callable[[], Mapping[str, Any]]] = {
        "submit": lambda: _submit(request, wire, programs),
        "status": lambda: _status(request, programs.status),
        "cancel": lambda: _cancel(request, wire, programs.cancel),
        "logs": lambda: _logs(request, wire, programs.submit),
        "files": lambda: _files(request, wire),
        "fetch": lambda: _fetch(request, wire),
    }
    operation = operations.get(str(request.get("op")))
    if operation is None:
        raise RemoteError(f"the cluster knows no {request.get('op')!r}", SAME_RELEASE)
    return operation()


def _submit(request: Message, wire: Wire, programs: Programs) -> Mapping[str, Any]:
    name, words = _id(request), _words(request, "options")
    offers = read_offers(request.get("files", []))
    submission = Submission(submissions.root(os.environ) / name)
    script = str(request.get("script") or "")
    path = str(submission.folder / inner_path(script)) if script else ""
    line = command_words(words, path, _words(request, "arguments"), _words(request, "command"))
    slurm = HereSlurm(submission, programs.submit, tuple(line))
    wanted = with_runs(Record(name, _digest(request), script=path), request.get("runs"), words, os.environ)
    once = Once(submission, slurm, lambda reception: _receive_files(reception, wire, request), _nothing)
    once.again, once.age = bool(request.get("again")), _age(request)
    if request.get("trial"):
        return _try(once, slurm, Reception(submission, offers))
    record, before = once.make(wanted, Reception(submission, offers))
    return {**as_json(submission, record), "before": before}


def _receive_files(reception: Reception, wire: Wire, request: Message) -> None:
    try:
        needed = dict(reception.missing())
        if request.get("eager"):
            needed = dict.fromkeys(needed, 0)  # everything comes unasked
        else:
            wire.put({"need": list(needed.items())})
        reception.take(wire, needed)
    except WireClosed:
        raise
    except (WireError, HpctoolsError, OSError) as error:
        raise Unmade(error) from None


def _try(once: Once, slurm: HereSlurm, reception: Reception) -> Mapping[str, Any]:
    """What would be submitted; nothing of it stays."""
    if os.path.lexists(once.submission.folder):
        raise RemoteError(f"{once.submission.folder} is there already", "leave out --submission")
    once.submission.make()
    try:
        once.receive(reception)
        return asdict(slurm.run(()))
    finally:
        os.chdir("/")
        shutil.rmtree(once.submission.folder, ignore_errors=True)


def _status(request: Message, program: Program) -> Mapping[str, Any]:
    """Plain jobs of submissions by us, elastic runs by hp-status; without a name a list, then the runs."""
    from hpctools.remote import overview

    words = _words(request, "words")
    named = [word for word in words if not word.startswith("-")]
    as_text = "--json" not in words
    found = lookup(named[0]) if named else None
    if found and not found[1].run:
        shown = overview.one(overview.entry(*found), as_text=as_text)
        return {"code": 0, "stdout": shown, "stderr": ""}
    if named:
        return asdict(listen(program, [_known_as(word) for word in words]))
    missed: list[RemoteError] = []
    known = submissions.every(os.environ, missed.append)
    every = overview.entries(known[:_LISTED] if as_text else known)
    said = listen(program, words)
    stderr = "".join(f"hp-status: {each}\n" for each in missed) + said.stderr
    if not as_text:
        runs = json.loads(said.stdout) if said.code == 0 else []
        stdout = json.dumps({"submissions": every, "runs": runs}) + "\n"
        return {"code": said.code, "stdout": stdout, "stderr": stderr}
    listed = overview.table(every, len(known) - len(every)) if every else "no submissions\n"
    return {"code": said.code, "stdout": f"{listed}\n{said.stdout}", "stderr": stderr}


def _known_as(word: str) -> str:
    """What the cluster's commands call a submission: its run, or its job."""
    found = submissions.find(word, os.environ)
    record = found.record() if found else None
    return (record.run or str(record.job_id or word)) if record else word


def _cancel(request: Message, wire: Wire, program: Program) -> Mapping[str, Any]:
    from hpctools.remote import cancelling
    from hpctools.submit import asking

    def pass_on(text: str) -> None:
        with contextlib.suppress(WireError):  # who has begun to cancel goes on without the laptop
            wire.put({"said": text})

    stated = asking.STATED.set(str(request.get("request") or asking.UNSTATED))
    try:
        # An older laptop shows what has been said with the result, and no earlier.
        live = pass_on if request.get("live") else None
        return asdict(cancelling.cancel(_words(request, "words"), program, live))
    finally:
        asking.STATED.reset(stated)


def _found(request: Message) -> tuple[Submission, Record]:
    name = str(request.get("id"))
    found = lookup(name)
    if found is None:
        raise RemoteError(f"the cluster knows no submission {name!r}", "hp-status --cluster NAME lists them")
    return found


def _logs(request: Message, wire: Wire, program: Program) -> Mapping[str, Any]:
    from hpctools.remote import job_output, overview

    submission, record = _found(request)
    record = with_job(submission, record, HereSlurm(submission, program, ()))
    follow, task = bool(request.get("follow")), request.get("task")
    runs = job_output.array_jobs(record)
    jobs = job_output.chosen(runs, task, record.id, follow=follow) or [record.job_id or 0]
    job, task = jobs[0], None if runs else task
    errors = bool(request.get("errors"))
    look = partial(job_output.together, submission, record.job_id, jobs, task, errors=errors)
    over = partial(job_output.job_is_over, job, task)
    found = _awaited(look, over, task, record.id) if follow else look()
    paths = found.of(task)
    begun = str(request.get("path"))
    # Files before the one in which the line broke have been sent; its offset is no other file's.
    place = paths.index(begun) if begun in paths else 0
    offset = int(request.get("offset", 0)) if begun in paths else 0
    if not job_output.is_same(Path(begun), offset, *request.get("last", (0, ""))):
        offset = 0
    for path in paths[place:]:
        for piece in job_output.Following(Path(path), over, _still_there).pieces(offset, follow=follow):
            wire.put({"path": piece.path, "offset": piece.offset}, piece.data)
        offset = 0  # it is the first one's
    ended = overview.ends(replace(record, job_id=job), task) if follow else []
    return {"paths": paths, "job_id": job, "job_states": ended, "forgotten": found.forgotten}


def _awaited(look: Callable[[], Outputs], over: Callable[[], bool], task: object, name: str) -> Outputs:
    """The one file to follow, once there is one: an array's tasks have none before they begin.

    Raises:
        UsageError: there are several, now or as soon as more tasks begin.
    """
    from hpctools.remote import job_output

    while True:
        found = look()
        if found.several(task):
            raise job_output.several_files(name)
        if found.of(task) or over():
            return found
        _wait(STATE_SECONDS)


def _wait(seconds: float) -> None:
    """Ask Slurm seldom, and notice soon that nobody listens any more."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        _still_there()
        time.sleep(min(1.0, left))


def _still_there() -> None:
    """Whoever follows says nothing; when the connection ends, so does our standard input."""
    ready, _, _ = select.select([0], [], [], 0)
    if ready and not os.read(0, 4096):
        raise WireClosed("the laptop is gone")


def _files(request: Message, wire: Wire) -> Mapping[str, Any]:
    from hpctools.remote import results

    submission, _ = _found(request)
    missed: dict[str, str] = {}
    found = results.results(submission.folder, _words(request, "patterns"), missed)
    stated = [asdict(each) for each in found]
    if request.get("pieces"):  # a line has a limit; a laptop of an older release knows one line only
        for begin in range(0, len(stated), _LISTED_TOGETHER):
            wire.put({"files": stated[begin : begin + _LISTED_TOGETHER]})
        stated = []
    told = dict(itertools.islice(missed.items(), _LISTED_TOGETHER))
    return {"folder": str(submission.folder), "files": stated, "missed": told}


def _fetch(request: Message, wire: Wire) -> Mapping[str, Any]:
    from hpctools.remote import results

    submission, _ = _found(request)
    for each in request.get("files", []):
        path, offset, size = str(each[0]), int(each[1]), int(each[2])
        try:
            for data, digest in results.content(submission.folder, path, offset, size):
                wire.put({"digest": digest} if not data else {}, data)
        except HpctoolsError as error:
            if not request.get("past_failures"):
                raise  # an older laptop knows no other way
            wire.put({"failed": error.message})
    return {}


def _id(request: Message) -> str:
    name = request.get("id")
    if not isinstance(name, str) or not is_id(name) or name == RECORD_FOLDER:
        raise UsageError(f"{name!r} is no submission's id", "leave out --submission")
    return name


def _age(request: Message) -> float | None:
    """Seconds since it may have been submitted already; None where that is not known."""
    stated = request.get("age")
    return min(float(stated), _LONG_AGO) if isinstance(stated, int | float) and stated >= 0 else None


def _words(request: Message, name: str) -> list[str]:
    words = request.get(name, [])
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise UsageError(f"the request's {name} are no words", SAME_RELEASE)
    return words


def _digest(request: Message) -> str:
    """Of what was asked for, however it is sent."""
    asked = {key: request.get(key) for key in ("options", "script", "arguments", "command", "files")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode("ascii")).hexdigest()


def _nothing() -> None:
    """The heartbeat speaks for us."""
