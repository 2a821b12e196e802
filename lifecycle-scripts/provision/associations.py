"""Accounts, people and tiers in slurmdbd, as the site had them when the bundle was made; nothing goes away.

The calls were made beforehand by hpctools, which knows how slurmdbd wants them; here they are only carried
out. Each of them adds or sets, so that all of them may be made again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision.accounting import is_wanted, prepared
from provision.failures import Failure
from provision.files import STATE, is_so, on_node, write_whole
from provision.step import Context
from provision.telling import sacctmgr, tell_all

_LIMITS = (
    "Fairshare,GrpTRES,GrpTRESMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESMins,MaxJobs,MaxSubmit,MaxWall,"
    "QOS,DefaultQOS"
)
_QUERIES = {
    "associations": ("show", "assoc", f"format=Account,User,ParentName,{_LIMITS}"),
    "coordinators": ("show", "account", "withcoord", "format=Account,Coordinators"),
    "defaults": ("show", "user", "format=User,DefaultAccount"),
    "tiers": (
        "show",
        "qos",
        "format=Name,Priority,Preempt,PreemptMode,GraceTime,MaxWall,MaxTRESPU,MaxTRES,GrpTRES,MaxJobsPU,"
        "MaxSubmitPU,UsageFactor",
    ),
}
# What budgets take of an account stands in its description, with what it was before (hpctools.conf.held).
_MARK = re.compile(r"\[hpctools-budget ([^\s\[\]]+)([^\[\]]*)\]")
_HELD = ("GrpSubmitJobs", "QOS", "DefaultQOS")
_ACCOUNT = re.compile(r"Account - '([^']*)'")


@dataclass(frozen=True)
class Known:
    """What slurmdbd knows.

    Attributes:
        rows: the answers to `_QUERIES`, by name; a list of fields each.
    """

    rows: Mapping[str, tuple[tuple[str, ...], ...]]

    @property
    def digest(self) -> str:
        """Stands for all of it, limits too."""
        text = json.dumps({name: sorted(rows) for name, rows in self.rows.items()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def missing(self, wanted: Mapping[str, Any]) -> list[str]:
        """Return what is wanted and not known, a line each."""
        found = self.rows["associations"]
        accounts = {row[0] for row in found if not row[1]}
        people = {(row[1], row[0]) for row in found if row[1]}
        tiers = {row[0] for row in self.rows["tiers"]}
        lines = [f"tier {name}" for name in wanted["tiers"] if name not in tiers]
        lines += [f"account {name}" for name in wanted["accounts"] if name not in accounts]
        lines += [f"{user} in {name}" for user, name in wanted["people"] if (user, name) not in people]
        return lines + [f"coordinator {user} of {name}" for user, name in self.uncoordinated(wanted)]

    def uncoordinated(self, wanted: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return who should coordinate an account and does not."""
        known = {(user, row[0]) for row in self.rows["coordinators"] for user in row[1].split(",")}
        return [(user, name) for user, name in wanted["coordinators"] if (user, name) not in known]


def is_done(context: Context) -> bool:
    """Whether slurmdbd knows everybody, and nothing differs from what it was when they were told last."""
    if not is_wanted(context):
        return True
    try:
        known, data = ask(context), prepared(context)
    except Failure:
        return False
    return not known.missing(data["expected"]) and is_so(_note_path(), _note(data, known))


def do(context: Context) -> None:
    """Tell it.

    Raises:
        Failure: slurmdbd refuses, does not answer, or lacks somebody afterwards.
    """
    data = prepared(context)
    tell_all(data["bootstrap"])
    held = _held(context)
    tell_all([_without_held(each, held) for each in data["additions"]])
    # A load makes only new people coordinators.
    tell_all([_coordinator(*each) for each in ask(context).uncoordinated(data["expected"])])
    known = ask(context)
    if lines := known.missing(data["expected"]):
        raise Failure(f"slurmdbd still lacks {len(lines)}, among them {lines[0]}")
    write_whole(_note_path(), _note(data, known), 0o600)


def ask(context: Context) -> Known:
    """Ask slurmdbd for all of it at once.

    Raises:
        Failure: it does not answer.
    """
    cluster = f"cluster={context.settings.section('cluster')['name']}"

    def rows(name: str) -> tuple[tuple[str, ...], ...]:
        words = _QUERIES[name]
        where = (cluster,) if name == "associations" else ()
        done = sacctmgr("--noheader", "--parsable2", *words[:2], *where, *words[2:])
        if done.code != 0:
            raise Failure(f"slurmdbd does not tell its {name}: {done.last_words}")
        return tuple(tuple(line.split("|")) for line in done.out.splitlines() if line.strip())

    with ThreadPoolExecutor() as pool:
        return Known(dict(zip(_QUERIES, pool.map(rows, _QUERIES), strict=True)))


def _held(context: Context) -> Set[tuple[str, str]]:
    """The limits that a budget has taken, account and word: the budget gives them back itself.

    Raises:
        Failure: slurmdbd does not tell.
    """
    cluster = context.settings.section("cluster")["name"].lower()
    done = sacctmgr("--noheader", "--parsable2", "show", "account", "format=Account,Descr")
    if done.code != 0:
        raise Failure(f"slurmdbd does not tell its accounts: {done.last_words}")
    found = set()
    for line in done.out.split("\n"):
        account, _, description = line.partition("|")
        for name, values in _MARK.findall(description.lower()):
            words = {value.partition("=")[0] for value in values.split() if name == cluster}
            found |= {(account, word) for word in _HELD if word.lower() in words}
    return found


def _without_held(call: Mapping[str, Any], held: Set[tuple[str, str]]) -> Mapping[str, Any]:
    """A load that leaves these limits as they are."""

    def kept(line: str) -> str:
        account = _ACCOUNT.match(line)
        words = [word for name, word in held if account and name == account[1]]
        return re.sub(rf":(?:{'|'.join(words)})='[^']*'", "", line) if words else line

    return {**call, "stdin": "".join(map(kept, call.get("stdin", "").splitlines(keepends=True)))}


def _coordinator(user: str, account: str) -> Mapping[str, Any]:
    return {"argv": ["add", "coordinator", f"account={account}", f"names={user}"]}


def _note_path() -> Path:
    return on_node(STATE) / "associations.json"


def _note(data: Mapping[str, Any], known: Known) -> str:
    """What was told, and what slurmdbd said afterwards: a limit that somebody changed voids it."""
    told = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return json.dumps({"told": told, "known": known.digest}) + "\n"
