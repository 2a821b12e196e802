"""A cluster of files: what its daemons have loaded outlives the process that changes it, as in real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpctools.conf.accounts import AccountTree, Association
from hpctools.conf.apply import Boot, Cluster, Generations, History, Outcome, Prospect, Request, change
from hpctools.conf.apply.cluster import Pause
from hpctools.conf.apply.who import Who
from hpctools.conf.bundle import Bundle, File
from hpctools.conf.plan.model import Change, DisturbedJob, FileChange, Need, Plan, Step
from hpctools.errors import ApplyError, CommandError, UnreachableError

NAMES = ("cgroup.conf", "slurm.conf", "slurmdbd.conf")
BOTH = ("n1", "n2")
ADA = Who("ada", "ctl-1", "10.0.0.7")


def bundle(word: str, *users: str, names: Sequence[str] = NAMES) -> Bundle:
    """Files that all say a word, and people."""
    files = [File(name, f"# {name}\n{word}\n", 0o600 if "dbd" in name else 0o644) for name in names]
    rows = tuple(Association(user, "lab", {}) for user in users)
    return Bundle(tuple(files), AccountTree(("c",), (), (), dict.fromkeys(users, "lab"), rows))


def texts(files: Mapping[str, object] | Bundle) -> dict[str, str]:
    """File texts by name."""
    assert isinstance(files, Bundle)
    return {file.path: file.text for file in files.files}


@dataclass
class StandIn:
    """Implements the three Protocols.

    Attributes:
        root: `etc/` is the configuration folder, `loaded/` what slurmctld read last, `people` slurmdbd's.
        needs: what a change of a file takes.
        poison: a word over which slurmctld stumbles; `deadly` whether it ends then.
        mute: why no daemon can be asked from here.
        seen: what it was told, in order.
        same: files whose new text means what the old one means.
        going: files that the plan finds to be ours and without use.
        disturbed: jobs that a change disturbs, as the plan tells.
        passed_on: what it takes that slurmctld passes on what slurmdbd was told.
        at: called before each thing that it is told, with its name; may raise or kill.
    """

    root: Path
    needs: Need = Need.RECONFIGURE
    poison: str = ""
    deadly: bool = False
    forgets: bool = False
    problems: tuple[str, ...] = ()
    lost: tuple[int, ...] = ()
    mute: str = ""
    jobs: tuple[int, ...] = ()
    disturbed: tuple[DisturbedJob, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    same: tuple[str, ...] = ()
    passed_on: Need = Need.LIVE
    going: tuple[str, ...] = ()
    seen: list[str] = field(default_factory=list)
    at: Callable[[str], None] = lambda what: None

    def __post_init__(self) -> None:
        for name in ("etc", "loaded"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def start(self, word: str, *users: str) -> None:
        """A cluster that was made by hand and runs."""
        for file in bundle(word).files:
            (self.etc / file.path).write_text(file.text)
            (self.etc / file.path).chmod(file.mode)
        self._load()
        self._people(users)
        (self.root / "up").touch()

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def files(self) -> dict[str, str]:
        """What a daemon would read."""
        return {path.name: path.read_text() for path in sorted(self.etc.iterdir()) if path.is_file()}

    @property
    def loaded(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted((self.root / "loaded").iterdir())}

    @property
    def people(self) -> set[str]:
        path = self.root / "people"
        return set(json.loads(path.read_text())) if path.exists() else set()

    @property
    def history(self) -> History:
        return History(self.root / "state")

    def apply(
        self,
        wanted: Bundle,
        agree: Callable[[Prospect], None] = lambda _: None,
        slurm_user: str = "root",
        tell: Callable[[str], None] = lambda _: None,
        **more: object,
    ) -> Outcome:
        """What `hpctools apply` does; -1000 nodes leave no time to wait for what does not come."""
        request = Request(wanted, -1000, slurm_user, ADA, "hpctools apply", **more)
        return change(
            request,
            Generations(self.etc),
            self.history,
            Cluster(self, self, self),
            agree=agree,
            tell=tell,
        )

    # -- Planner

    def ready(self) -> None:
        if self.mute:
            raise UnreachableError(self.mute)

    def plan(self, wanted: Bundle, *, prune: bool = False) -> Plan:
        up = self.controller_answers()
        changes = [
            Change("file", name, "text", self.loaded.get(name), text, self.needs, nodes=BOTH, drains=BOTH)
            for name, text in texts(wanted).items()
            if up and self.loaded.get(name) != text and name not in self.same
        ]
        changes += [
            Change("association", name, "", None, "lab", self.passed_on)
            for name in sorted(self._users(wanted) - self.people)
        ]
        if prune:
            changes += [
                Change("association", name, "", "lab", None, Need.LIVE)
                for name in sorted(self.people - self._users(wanted))
            ]
        unknown = () if up else ("slurmctld does not answer",)
        digest = str(hash((tuple(sorted(self.loaded.items())), tuple(sorted(self.people)))))
        files = tuple(FileChange(name, "", "", meaning=False) for name in self.same)
        files += tuple(FileChange(name, "", None) for name in self.going if (self.etc / name).exists())
        where = ("c", "22.05.8", str(self.etc))
        return Plan(*where, tuple(changes), files, self.disturbed, unknown=unknown, digest=digest)

    def preflight(self, wanted: Bundle) -> Boot:
        self._told("preflight")
        return Boot(self.problems, self.lost)

    # -- Accounts

    def read(self) -> AccountTree:
        return bundle("", *sorted(self.people)).accounts

    def dump(self) -> str:
        return "\n".join(sorted(self.people))

    def bootstrap(self, wanted: AccountTree) -> None:
        self._told("bootstrap")

    def add(self, wanted: AccountTree) -> None:
        for row in wanted.associations:
            self._told(f"add {row.user}")
            self._people({*self.people, row.user})

    def settle(self, wanted: AccountTree, *, prune: bool) -> None:
        self.add(wanted)
        if prune:
            for name in sorted(self.people - {row.user for row in wanted.associations}):
                self._told(f"remove {name}")
                self._people(self.people - {name})

    def left(self, wanted: AccountTree, *, prune: bool) -> tuple[str, ...]:
        missing = {row.user for row in wanted.associations} - self.people
        return (*sorted(missing), *(["ghost"] if self.forgets else []))

    def restore(self, before: AccountTree) -> tuple[str, ...]:
        self._told("restore")
        self._people(row.user for row in before.associations)
        return ()

    # -- Daemons

    def controller_answers(self) -> bool:
        return (self.root / "up").exists()

    def accounting_answers(self) -> bool:
        return not (self.root / "dbd-down").exists()

    def carry_out(self, step: Step, pause: Pause) -> None:
        self._told(step.need.value)
        if step.need is Need.RESTART_SLURMDBD:
            (self.root / "dbd-down").unlink(missing_ok=True)
        if self.poison and any(self.poison in text for text in self.files.values()):
            if self.deadly:
                (self.root / "up").unlink()
            raise ApplyError(f"{step.need.value} failed: slurmctld stumbles over {self.poison!r}")
        if step.need is Need.RESTART_SLURMCTLD:
            (self.root / "up").touch()
        if step.need in (Need.RESTART_SLURMCTLD, Need.RECONFIGURE):
            self._load()

    def sick(self) -> dict[str, str]:
        return dict(self.refused)

    def jobs_on(self, nodes: Sequence[str]) -> tuple[int, ...]:
        return self.jobs

    def taking_jobs(self, nodes: Sequence[str]) -> tuple[str, ...]:
        return tuple(nodes)

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        self._told(f"drain {','.join(nodes)}")

    def resume(self, nodes: Sequence[str]) -> tuple[str, ...]:
        self._told(f"resume {','.join(nodes)}")
        return tuple(name for name in nodes if name in self.refused)

    # --

    def _told(self, what: str) -> None:
        self.at(what)
        self.seen.append(what)

    def _load(self) -> None:
        for path in (self.root / "loaded").iterdir():
            path.unlink()
        for name, text in self.files.items():
            _put(self.root / "loaded" / name, text)

    def _people(self, names: object) -> None:
        _put(self.root / "people", json.dumps(sorted(names)))

    @staticmethod
    def _users(wanted: Bundle) -> set[str]:
        return {row.user for row in wanted.accounts.associations}


def _put(path: Path, text: str) -> None:
    """Written at once, as a daemon's memory is."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text)
    fresh.rename(path)


def refuse(what: str) -> Callable[[str], None]:
    """An `at` that fails like sacctmgr does."""

    def at(told: str) -> None:
        if told == what:
            raise CommandError(f"sacctmgr failed at {what}", argv=["sacctmgr"], code=1)

    return at
