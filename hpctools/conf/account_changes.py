"""What separates the accounts that slurmdbd knows from those that the site wants, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["cluster", "qos", "account", "association", "user", "coordinator"]
Action = Literal["add", "set", "remove", "rename"]


@dataclass(frozen=True)
class AccountChange:
    """One difference between slurmdbd and the site.

    Attributes:
        kind: what it is about; `user` stands for a person's default account.
        action: `add` and `remove` are about the whole, `set` about one setting, `rename` keeps all else.
        name: the cluster, the QoS, the account, or the person (association, user, coordinator).
        account: the account of an association, of a default account or of a coordinator.
        key: for `set` the setting in sacctmgr's word; `Parent` for an account that moves.
        before: for `set` and `rename`: what there is, canonical (see `vocabulary.py`); "" when not set.
        after: for `set` and `rename`: what there is to be.
        settings: for `add`: what it comes with; words and canonical values, only those that are set.
        users: the people whom it affects, in order; empty where it is nobody in particular.
        late: it has to wait until slurm.conf has switched: it takes something away, or speaks of a TRES
            that slurmctld registers first.
        why: one sentence where the change alone does not say it; may be empty.
    """

    kind: Kind
    action: Action
    name: str
    account: str = ""
    key: str = ""
    before: str = ""
    after: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    users: tuple[str, ...] = ()
    late: bool = False
    why: str = ""

    @property
    def subject(self) -> str:
        """What changes, for a person: `high`, `nlp-lab-a`, `ada in nlp-lab-a`."""
        joint = {"association": " in ", "coordinator": " of "}.get(self.kind)
        return f"{self.name}{joint}{self.account}" if joint else self.name


@dataclass(frozen=True)
class Kept:
    """Something that the site does not name and that stays all the same.

    Attributes:
        kind, name, account: as in `AccountChange`.
        why: for example `2 jobs running`, or `not asked to remove it`.
        jobs: ids of the jobs that it is kept for.
    """

    kind: Kind
    name: str
    account: str
    why: str
    jobs: tuple[int, ...] = ()

    @property
    def subject(self) -> str:
        """What stays, for a person."""
        return AccountChange(self.kind, "remove", self.name, self.account).subject


@dataclass(frozen=True)
class AccountDifference:
    """All that separates slurmdbd from what is wanted.

    Attributes:
        cluster: the cluster whose accounts they are.
        changes: what is to be done; empty when nothing separates them.
        kept: what is there, is not wanted and stays.
        shared: whether slurmdbd serves other clusters too.
        new_people: people of whom slurmdbd has never heard.
        defaults: the default account of each person who is new in an account.
        inherited: by (user, account) of a coordinator who goes: accounts below, of which they go at the same
            time; they may have been named of them, too.
        last: (user, account) of associations that go: the default ones of people who keep none.
    """

    cluster: str
    changes: tuple[AccountChange, ...]
    kept: tuple[Kept, ...] = ()
    shared: bool = False
    new_people: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    inherited: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    last: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Call:
    """One call of `sacctmgr --immediate`.

    Attributes:
        argv: its arguments after `--immediate`.
        stdin: text for its standard input (`load file=/dev/stdin`); "" for none.
        changes: what it carries out.
        together: whether it may be made at the same time as its neighbours that may.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    changes: tuple[AccountChange, ...] = ()
    together: bool = False
