"""`hpctools preflight`: boot a configuration with a throwaway slurmctld before anything is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from hpctools.cli.target import find_target, target_options
from hpctools.errors import HpctoolsError, UsageError

if TYPE_CHECKING:
    from hpctools.conf.preflight import Verdict

_CONF = "slurm.conf"


class _Subject(NamedTuple):
    """What is booted: the texts, where they are to lie, and the names that slurmdbd will be told of."""

    files: dict[str, str]
    folder: Path
    coming: frozenset[str]


@click.command()
@target_options
@click.option("--state", type=click.Path(path_type=Path), help="The live StateSaveLocation (default: found).")
@click.option("--no-state", is_flag=True, help="Boot without the live nodes, jobs and associations.")
@click.option("--slurm-root", type=click.Path(path_type=Path), default="/", help="Where Slurm is installed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def preflight(
    site_file: Path | None,
    folder: Path | None,
    facts_file: Path | None,
    state: Path | None,
    no_state: bool,
    slurm_root: Path,
    as_json: bool,
) -> int:
    """Boot a configuration with a throwaway slurmctld, apart from everything that runs.

    SITE is a site file, or a folder with a slurm.conf. Nothing is written, no daemon is contacted. Exits with
    0 when slurmctld comes up with the nodes and partitions that the configuration declares, else with 1.

    \b
    Example:  hpctools preflight site.yaml
    """
    from hpctools.slurm.throwaway.place import Place

    if state is not None and no_state:
        raise UsageError("--state and --no-state exclude each other", "give one of them")
    if state is not None:
        _check_state(state)
    with Place() as place:  # it is made while the rest is imported and the site compiled
        from hpctools.conf.preflight import live_state, preflight

        subject = _subject(site_file, folder, facts_file)
        found = None if no_state else state or live_state(subject.files, subject.folder)
        root = slurm_root.resolve()
        verdict = preflight(
            subject.files, folder=subject.folder, state=found, coming=subject.coming, root=root, place=place
        )
    verdict = replace(verdict, lost_jobs=_unfinished(verdict.lost_jobs))
    click.echo(_json(verdict) if as_json else "\n".join(_text(verdict)))
    return 0 if verdict.ok else 1


def _check_state(state: Path) -> None:
    """Refuse a folder without a state that we may read: it would be passed over, and no job looked at."""
    if not state.is_dir():
        raise UsageError(f"there is no folder {state}", "name slurmctld's StateSaveLocation")
    try:
        with (state / "assoc_mgr_state").open("rb"):
            return
    except OSError as error:
        raise UsageError(
            f"{state} has no state that we may read: assoc_mgr_state: {error.strerror}",
            "name the live slurmctld's StateSaveLocation, as root; --no-state goes without it",
        ) from None


def _unfinished(jobs: tuple[int, ...]) -> tuple[int, ...]:
    """Those that can be lost: slurmctld remembers jobs for minutes after their end, and ends them again."""
    from hpctools.slurm.cli import CommandClient
    from hpctools.slurm.throwaway.seen import OVER

    if not jobs:
        return ()
    try:
        over = {job.id for job in CommandClient().jobs(ids=jobs) if job.state in OVER}
    except HpctoolsError:
        return jobs  # nobody tells: rather named than missed
    return tuple(job for job in jobs if job not in over)


def _subject(site_file: Path | None, folder: Path | None, facts_file: Path | None) -> _Subject:
    from hpctools.conf.preflight import bundle_files, read_folder

    if site_file is not None and site_file.is_dir():
        if not (site_file / _CONF).is_file():
            raise UsageError(f"{site_file} has no {_CONF}", "name a site file or a folder with a slurm.conf")
        return _Subject(read_folder(site_file), folder or site_file.resolve(), frozenset())
    target = find_target(site_file, folder, facts_file)
    accounts = target.bundle.accounts
    names = frozenset([*(qos.name for qos in accounts.qos), *(row.name for row in accounts.accounts)])
    return _Subject(bundle_files(target.bundle, target.folder), target.folder, names)


def _json(verdict: Verdict) -> str:
    return json.dumps({"ok": verdict.ok, **asdict(verdict)}, indent=2)


def _text(verdict: Verdict) -> Iterator[str]:
    for problem in verdict.problems:
        yield f"problem: {problem.meaning}"
        if problem.said:
            yield f"  slurmctld said: {problem.said}"
        if problem.remedy:
            yield f"  remedy: {problem.remedy}"
    if verdict.lost_jobs:
        yield f"jobs that would be lost: {', '.join(map(str, verdict.lost_jobs))}"
    for sentence in verdict.not_checked:
        yield f"not checked: {sentence}"
    yield _end(verdict)


def _end(verdict: Verdict) -> str:
    seconds = f"{verdict.seconds.get('all', 0):.1f} s"
    if verdict.ok:
        return (
            f"{verdict.release} boots it: {verdict.nodes} nodes, {verdict.partitions} partitions ({seconds})"
        )
    count = len(verdict.problems)
    return f"{verdict.release} finds {count} problem{'s' * (count != 1)} ({seconds})"
