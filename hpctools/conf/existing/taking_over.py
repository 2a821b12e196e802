"""From what a cluster has to a site file whose plan against that cluster is empty."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpctools.conf.bundle import Bundle
from hpctools.conf.compiler import compile
from hpctools.conf.existing.closing import Closing, close_accounts
from hpctools.conf.existing.places import facts_of
from hpctools.conf.existing.site_file import Draft, Existing, draft, spell
from hpctools.conf.facts import Facts
from hpctools.conf.plan.compare import make_plan
from hpctools.conf.plan.live import Live, OnDisk
from hpctools.conf.plan.meaning import Meaning, read_meaning
from hpctools.errors import HpctoolsError
from hpctools.site.findings import InvalidSiteError
from hpctools.site.load import loads
from hpctools.slurm.versions import OLDEST

_ROUNDS = 5


@dataclass(frozen=True)
class TakenOver:
    """A site file made from what there was.

    Attributes:
        text: the file.
        facts: what is not for a site file: addresses and ports of single daemons.
        left_out: what could not be said, a sentence each; hpctools leaves it as it is.
    """

    text: str
    facts: Facts
    left_out: tuple[str, ...]


def take_over(existing: Existing, facts: Facts, heading: str) -> TakenOver:
    """Make a site file.

    Args:
        existing: what there is.
        facts: what is known of the installation, for example from its facts file.
        heading: the comment at the file's beginning.

    Raises:
        HpctoolsError: a file cannot be understood, or what it says cannot be had in a site file.
    """
    there = read_meaning(existing.files)
    known = replace(facts, slurm_version=existing.release or facts.slurm_version)
    facts = facts_of(there, existing.files, known)
    drafted = draft(existing, facts)
    closing = Closing(drafted.words, drafted.groups, facts.slurm_version or OLDEST)
    for _ in range(_ROUNDS):
        text = spell(drafted.words, heading)
        bundle = _compiled(text, facts)
        if not _closer(existing, drafted, closing, bundle, there):
            break
    return TakenOver(text, facts, (*drafted.left_out, *_changes(bundle, existing, closing.left_out)))


def _changes(bundle: Bundle, existing: Existing, left_out: Collection[str]) -> Iterator[str]:
    """What cannot be said of the files, and what the site file's plan would therefore change."""
    yield from sorted(left_out)
    live = Live(OnDisk(existing.files), None, existing.accounts, (), existing.release)
    for change in make_plan(bundle, live, folder=Path("/etc/slurm")).changes:
        what = " ".join(dict.fromkeys(filter(None, (change.area, change.subject, change.key))))
        yield f"{what} would change: {change.before or 'nothing'} -> {change.after or 'nothing'}"


def _compiled(text: str, facts: Facts) -> Bundle:
    try:
        return compile(loads(text, "the draft"), facts)
    except InvalidSiteError as error:
        raise HpctoolsError(
            f"what the cluster has cannot be had in a site file:\n{error}",
            "change it on the cluster, or leave it out of the folder that is imported",
        ) from None


def _closer(existing: Existing, drafted: Draft, closing: Closing, bundle: Bundle, there: Meaning) -> bool:
    """Say what the draft does not say yet; whether there was something."""
    files = {file.path: file.text for file in bundle.files}
    wanted = read_meaning(files)
    closing.changed = close_accounts(drafted.words, bundle.accounts, existing.accounts)
    closing.settings(wanted, there)
    closing.nodes(wanted, there)
    closing.partitions(wanted, there)
    closing.gres(files, existing.files)
    for path in ("cgroup.conf", "slurmdbd.conf"):
        closing.file(path, files, existing.files)
    return closing.changed
