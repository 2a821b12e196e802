"""The record of a change, begun before anything is touched: the backup of files and accounts."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

from hpctools.conf.accounts import AccountTree
from hpctools.conf.apply.history import DUMP, PLAN, accounts_name, accounts_text
from hpctools.conf.apply.preparation import Prepared
from hpctools.conf.apply.progress import Parts, Progress
from hpctools.conf.apply.record import Phase, Record


def begin(prepared: Prepared, parts: Parts) -> Progress:
    """Remember everything that taking the change back needs.

    Raises:
        HpctoolsError: it cannot be written, or slurmdbd cannot be read; nothing has changed.
    """
    accounts = _accounts(prepared, parts)
    documents = {PLAN: prepared.plan.to_json(), **prepared.request.documents}
    if accounts is not None:
        documents[accounts_name("before")] = accounts_text(accounts)
        documents[DUMP] = parts.cluster.accounts.dump()
    last = prepared.last or _as_found(prepared, parts, accounts)
    record = replace(
        _blank(prepared, parts, prepared.request.kind),
        number=last.number + 1,
        command=prepared.request.command,
        steps=prepared.steps,
        owed=last.owed,
        changes=len(prepared.plan.changes),
        back_to=prepared.request.back_to,
    )
    parts.history.begin(record, prepared.before, prepared.after, documents)
    return Progress(record, accounts_before=accounts)


def _accounts(prepared: Prepared, parts: Parts) -> AccountTree | None:
    """What slurmdbd knows, where it is going to change, and before the first change."""
    if prepared.first_start and not parts.cluster.daemons.accounting_answers():
        return None
    if not prepared.tells_accounts and prepared.last is not None:
        return None
    parts.doing("keeping what slurmdbd knows")
    return parts.cluster.accounts.read()


def _as_found(prepared: Prepared, parts: Parts, accounts: AccountTree | None) -> Record:
    """Change 0: what there was before the first."""
    blank = _blank(prepared, parts, "as found")
    found = replace(blank, phase=Phase.DONE, result="applied", in_force="after", ended=blank.began)
    documents = {} if accounts is None else {accounts_name("after"): accounts_text(accounts)}
    return parts.history.begin(found, {}, prepared.before, documents)


def _blank(prepared: Prepared, parts: Parts, kind: Literal["as found", "apply", "rollback"]) -> Record:
    who = prepared.request.who
    return Record(
        number=0,
        kind=kind,
        cluster=prepared.request.bundle.accounts.clusters[0],
        release=prepared.plan.release,
        folder=str(parts.generations.folder),
        who=who.name,
        host=who.host,
        source=who.source,
        command="",
        began=time.time(),
    )
