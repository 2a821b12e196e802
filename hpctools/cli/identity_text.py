"""What `hpctools identity` tells, for people and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpctools.identity.people import GroupPeople, Refusal
from hpctools.identity.run_as import TAG, run_as_policy, run_as_tags, run_as_users, session_document_name
from hpctools.identity.sync import GroupChange, Sync
from hpctools.site.model import Site


def groups_text(people: Sequence[GroupPeople]) -> str:
    """Each group with its people, then those who are refused."""
    lines = [f"{each.group}: {_found(each)}" for each in people]
    refused = [refusal for each in people for refusal in each.refused]
    return "\n".join([*lines, *_refusals(refused)]) + "\n"


def _found(people: GroupPeople) -> str:
    if people.found != 1:
        return "no such group" if people.found == 0 else f"{people.found} groups have this name"
    return ", ".join(people.users) or "nobody"


def groups_json(people: Sequence[GroupPeople]) -> dict[str, Any]:
    """The same as data."""
    return {"groups": [asdict(each) for each in people]}


def sync_text(found: Sync, place: Path, changed: bool, dry_run: bool, *, hyperpod: bool = False) -> str:
    """What changed, what did not and why.

    Args:
        hyperpod: the site is of HyperPod, where no plan can be made.
    """
    lines = [line for each in found.changes for line in _change(each)]
    if not changed:
        last = f"{place}: nothing has changed"
    elif dry_run:
        last = f"{place}: would be written"
    else:
        last = f"{place}: written; {_next(hyperpod)}"
    return "\n".join([*lines, *_refusals(found.refused), last]) + "\n"


def _next(hyperpod: bool) -> str:
    if hyperpod:
        return "`hpctools hyperpod update` uploads it; then the controller needs the new scripts"
    return "`hpctools plan` shows what it means"


def _change(change: GroupChange) -> Iterator[str]:
    for sign, people in (("+", change.joined), ("-", change.left)):
        if people:
            yield f"{sign} {change.group}: {', '.join(people)}"
    if change.why:
        state = "not known yet" if change.users is None else "stays as it was"
        kept = f" ({', '.join(change.kept)})" if change.kept else ""
        agree = f"if that is right: --accept-removals {shlex.quote(change.group)}"
        yield f"! {change.group} {state}: {change.why}{kept}; {agree}"


def _refusals(refused: Sequence[Refusal]) -> Iterator[str]:
    for each in refused:
        yield f"! refused in {each.group}: {each.who}: {each.why}"


def sync_json(found: Sync, place: Path, written: bool) -> dict[str, Any]:
    """The same as data."""
    return {
        "file": str(place),
        "written": written,
        "groups": [asdict(each) for each in found.changes],
        "refused": [asdict(each) for each in found.refused],
    }


def run_as_text(site: Site) -> str:
    """A table of principals, then the policy."""
    users = run_as_users(site)
    table = [f"{principal:<40} {TAG}={user}" for principal, user in users.items()]
    parts = (
        "\n".join(table) or "no principal has a Unix account of its own in the site file",
        f"The policy that denies sessions as anybody else:\n{json.dumps(_policy(site), indent=2)}",
    )
    return "\n\n".join(parts) + "\n"


def run_as_json(site: Site) -> dict[str, Any]:
    """The same as data."""
    return {
        "principals": [
            {"principal": principal, "user": user, "tags": run_as_tags(user)}
            for principal, user in run_as_users(site).items()
        ],
        "policy": _policy(site),
    }


def _policy(site: Site) -> dict[str, Any]:
    return run_as_policy(session_document_name(site))
