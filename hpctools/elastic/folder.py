"""The run folder: everything that outlives a process of an elastic run, and its only reader and writer.

    run.json          RunSpec, written once by hp-submit
    jobs.jsonl        one line a Slurm job of the run (appended by hp-submit and the coordinator)
    terms/            a file for each coordinator that the run ever had; the highest number is in office;
                      beside it, as <number>.json (0600), where it listens and the secret that admits others
    time.json         how long Slurm lets the baseline job go on, as last known
    end.json          that somebody wants the run to end, and why
    asked.json        which hp-cancel has got through to Slurm; again.json: that there was another one
    events.jsonl      what happened, a line each
    history.jsonl     how it stood from time to time, of bounded length
    status.json       how it stands; replaced as a whole
    logs/             output of the Slurm jobs and of the workers

The folder is 0700 and lies on a file system that all nodes share.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpctools.elastic.folder_files import FolderFiles, unlinkable, unwritable
from hpctools.elastic.history import Moment, to_json
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit
from hpctools.errors import ElasticError, UsageError

ACTIVE_STATES = ("starting", "running")
FINAL_STATES = ("finished", "failed", "cancelled")


def utc_now() -> str:
    """The present, ISO 8601 with milliseconds, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def runs_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a user's run folders lie: $HPCTOOLS_RUNS, or ~/.hpctools/runs.

    Raises:
        UsageError: nothing says where home is, or $HPCTOOLS_RUNS means another folder from each folder.
    """
    chosen = environ.get("HPCTOOLS_RUNS")
    if chosen and not chosen.startswith("/"):
        raise UsageError(
            f"HPCTOOLS_RUNS is {chosen!r}, which is no absolute path",
            "export HPCTOOLS_RUNS=$HOME/runs, or another folder that all nodes share; or unset it",
        )
    try:
        return Path(chosen) if chosen else Path(environ.get("HOME") or Path.home()) / ".hpctools" / "runs"
    except RuntimeError:
        raise UsageError(
            "your home folder is not known, and so not where your runs are", "set HOME, or HPCTOOLS_RUNS"
        ) from None


@dataclass(frozen=True)
class JobRecord:
    """A Slurm job that belongs to the run.

    Attributes:
        time: when it was submitted, ISO 8601, UTC.
        role: `baseline` or `replica`.
    """

    time: str
    role: str
    job_id: int


@dataclass(frozen=True)
class Event:
    """Something that happened to the run.

    Attributes:
        time: ISO 8601, UTC.
        event: started, submitted, joined, resize, left, preempted_by, warning, finished, failed or
            cancelled.
        detail: what else is known; the keys depend on `event` (docs/elastic-reference.md lists them).
    """

    time: str
    event: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunStatus:
    """How the run stands.

    Attributes:
        state: starting, running, finished, failed or cancelled.
        generation: number of the present membership; 0 before the first.
        world_size: workers that train.
        nodes: names of the nodes they are on, in rank order.
        step, total_steps: committed and planned optimizer steps; total is None when unknown.
        loss: of the last committed step; None before the first.
        samples_per_second: over the last few seconds, 0 while nobody trains; None before it can be known.
        steps_per_second: the same of a script without the library, which tells no samples (restart mode);
            what is done once more after a crash counts. None where it asks for no events.
        updated: ISO 8601, UTC.
        last_resize: from, to, generation, step, time, pause_s and phases; None before the first.
        message: why it failed or was cancelled; empty otherwise.
    """

    state: str
    generation: int = 0
    world_size: int = 0
    nodes: tuple[str, ...] = ()
    min_nodes: int = 0
    max_nodes: int = 0
    step: int = 0
    total_steps: int | None = None
    loss: float | None = None
    samples_per_second: float | None = None
    steps_per_second: float | None = None
    updated: str = ""
    last_resize: dict[str, Any] | None = None
    message: str = ""


@dataclass(frozen=True)
class CoordinatorAddress:
    """Where the coordinator listens, and the secret that admits agents and workers."""

    host: str
    port: int
    token: str = field(repr=False)
    pid: int
    job_id: int
    term: int = 1


@dataclass(frozen=True)
class Ending:
    """Somebody wants the run to end; whoever coordinates it then ends it so.

    Attributes:
        state: that the run is to have: finished, failed or cancelled.
    """

    state: str
    message: str


class RunFolder(FolderFiles):
    """One run's folder.

    Every method raises ElasticError when the folder cannot be read or written, with the reason.
    """

    @classmethod
    def create(cls, path: Path, spec: RunSpec) -> RunFolder:
        """Make the folder (0700, parents too) and write the spec into it.

        Raises:
            ElasticError: it exists already or cannot be written; a partly made folder stays for the caller
                to remove.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            (path / "logs").mkdir(mode=0o700)
            (path / "terms").mkdir(mode=0o700)
        except OSError as error:
            raise unwritable(path, error) from None
        folder = cls(path)
        folder._replace("run.json", spec.to_json())
        return folder

    @property
    def logs(self) -> Path:
        """The folder of the run's log files."""
        return self.path / "logs"

    def spec(self) -> RunSpec:
        """The run's description."""
        return RunSpec.from_json(self._object("run.json"))

    def status(self) -> RunStatus | None:
        """How the run stands; None before its coordinator wrote it for the first time."""
        values = self._object_if_there("status.json")
        if values is None:
            return None
        values["nodes"] = tuple(values.get("nodes") or ())
        return self._record(RunStatus, values, "status.json")

    def coordinator(self) -> CoordinatorAddress | None:
        """Where the newest coordinator listens that has published it; None: none has, or it has ended.

        Each term has a file of its own: who was replaced and does not know it cannot hide who is in office.
        """
        for term in sorted(self._terms(".json"), reverse=True):
            if (address := self.coordinator_of(term)) is not None:
                return address
        return None

    def coordinator_of(self, term: int) -> CoordinatorAddress | None:
        """Where a term's coordinator listens, or did; None: it has not published it, or the run has ended."""
        name = f"terms/{term}.json"
        values = self._object_if_there(name)
        return None if values is None else self._record(CoordinatorAddress, values, name)

    def events(self) -> list[Event]:
        """All events, oldest first."""
        return [
            Event(str(line.pop("time", "")), str(line.pop("event", "")), line)
            for line in self._lines("events.jsonl")
        ]

    def jobs(self) -> list[JobRecord]:
        """All Slurm jobs that the run ever had, oldest first."""
        return [
            JobRecord(str(line.get("time", "")), str(line.get("role", "")), line["job_id"])
            for line in self._lines("jobs.jsonl")
            if isinstance(line.get("job_id"), int)
        ]

    def history(self) -> list[Moment]:
        """How the run stood over its whole time, oldest first."""
        moments = (Moment.from_json(line) for line in self._lines("history.jsonl"))
        return [moment for moment in moments if moment is not None]

    def append_moment(self, moment: Moment) -> None:
        """Add how the run stands."""
        self._append("history.jsonl", to_json(moment))

    def replace_history(self, moments: Sequence[Moment]) -> None:
        """Put these moments in place of all."""
        lines = "".join(json.dumps(to_json(moment)) + "\n" for moment in moments)
        self._replace_text("history.jsonl", lines)

    def write_status(self, status: RunStatus) -> None:
        """Replace the status as a whole; readers see the old or the new one."""
        self._replace("status.json", asdict(status))

    def write_coordinator(self, address: CoordinatorAddress) -> None:
        """Publish where the coordinator listens."""
        self._replace(f"terms/{address.term}.json", asdict(address))

    def remove_coordinators(self, last: int) -> None:
        """Withdraw the addresses up to a term, so that nobody waits for a coordinator that has ended."""
        terms = self.path / "terms"
        try:
            for term in sorted(self._terms(".json")):  # the newest last: see `RunDesk.fence`
                if term <= last:
                    (terms / f"{term}.json").unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(terms, error) from None

    def current_term(self) -> int:
        """The highest term that anybody has claimed; 0 before the first coordinator."""
        return max(self._terms(), default=0)

    def findable_term(self) -> int:
        """The highest term whose coordinator's address is published; 0: none is."""
        return max(self._terms(".json"), default=0)

    def _terms(self, suffix: str = "") -> list[int]:
        """The numbers of the files `<number><suffix>`."""
        terms = self.path / "terms"
        try:
            names = [each.name for each in terms.iterdir()]  # opendir(3) asks an NFS server
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ElasticError(f"cannot read {terms}: {error}") from None
        stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
        return [int(stem) for stem in stems if stem.isdecimal()]

    def claim_term(self, term: int, **claimant: Any) -> bool:
        """Become the coordinator of a term; False: somebody else was first.

        link(2) is atomic on every shared file system, and unlike open(2) with O_EXCL its outcome can be told
        even when the server's answer was lost: by the number of links.
        """
        terms = self.path / "terms"
        temporary = ""
        try:
            terms.mkdir(mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".claim.", dir=terms)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps({"time": utc_now(), **claimant}) + "\n")
            try:
                (terms / str(term)).hardlink_to(temporary)
            except FileExistsError:
                return Path(temporary).stat().st_nlink == 2
            except OSError as error:
                raise unlinkable(terms / str(term), error) from None
            return True
        except OSError as error:
            raise unwritable(terms / str(term), error) from None
        finally:
            if temporary:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink(missing_ok=True)

    def ask_to_end(self, ending: Ending) -> None:
        """Note that the run is to end; the first wish counts, unless nobody can read it."""
        try:
            first = self.ending()
        except ElasticError:  # a full disk has torn it
            first = None
        if first is None:
            self._replace("end.json", asdict(ending))

    def note_asked(self, request: str) -> None:
        """Note that an hp-cancel has got through to Slurm.

        Args:
            request: its id, the same however often it is tried.
        """
        self._replace("asked.json", {"request": request})

    def asked(self) -> str | None:
        """Which hp-cancel that was; empty: it cannot be read; None: there was none."""
        try:
            values = self._object_if_there("asked.json")
        except ElasticError:
            return ""
        return None if values is None else str(values.get("request", ""))

    def ask_again(self) -> None:
        """Note that who wants the run to end does not want to wait until it has saved."""
        self._replace("again.json", {})

    def was_asked_again(self) -> bool:
        """Whether that is noted."""
        return self._object_if_there("again.json") is not None

    def ending(self) -> Ending | None:
        """How somebody wants the run to end; None: nobody does."""
        values = self._object_if_there("end.json")
        return None if values is None else Ending(str(values.get("state")), str(values.get("message")))

    def time_limit(self) -> TimeLimit | None:
        """How long Slurm lets the baseline job go on, as last known; None: nothing is."""
        values = self._object_if_there("time.json")
        if values is None:
            return None
        return TimeLimit(values.get("baseline"), values.get("end"), values.get("minutes"))

    def write_time_limit(self, limit: TimeLimit) -> None:
        """Note what Slurm has told of it."""
        self._replace("time.json", asdict(limit))

    def append_event(self, event: str, **detail: Any) -> None:
        """Add an event that happens now."""
        self.append_events(Event(utc_now(), event, detail))

    def append_events(self, *events: Event) -> None:
        """Add events, all of them or none."""
        lines = ({"time": each.time, "event": each.event, **each.detail} for each in events)
        self._append("events.jsonl", *lines)

    def append_job(self, role: str, job_id: int, time: str = "") -> None:
        """Record that a Slurm job of the run was submitted then, ISO 8601; just now when empty."""
        self._append("jobs.jsonl", {"time": time or utc_now(), "role": role, "job_id": job_id})
