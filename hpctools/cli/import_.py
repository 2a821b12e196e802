"""`hpctools import`: a site file from a cluster that is there already."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import click

from hpctools.cli.output import refuse_folder, save
from hpctools.conf.existing.read import read_existing
from hpctools.conf.existing.taking_over import TakenOver, take_over
from hpctools.conf.facts import Facts
from hpctools.conf.facts_file import FACTS_FILE, dump_facts, load_facts
from hpctools.errors import HpctoolsError, UsageError
from hpctools.slurm.run import run
from hpctools.slurm.versions import Release, parse_release

ASK_SECONDS = 60.0
HEADING = """\
Taken over from the cluster {cluster}: `hpctools plan` finds nothing to change there.
What is in Slurm's own words (`parameters`, `settings`) is what the cluster has otherwise than hpctools would
choose. docs/site-file.md explains each key."""


@click.command("import")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("/etc/slurm"),
    show_default=True,
    help="Where slurm.conf is.",
)
@click.option(
    "--dump",
    type=click.Path(path_type=Path),
    help="What `sacctmgr dump` wrote; slurmdbd is asked when left out.",
)
@click.option(
    "--qos",
    type=click.Path(path_type=Path),
    help="What `sacctmgr --parsable2 show qos` printed; slurmdbd is asked when left out.",
)
@click.option("--slurm", "release", help="The Slurm release, if `scontrol --version` cannot be asked here.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the site file here.")
@click.option(
    "--facts-out",
    type=click.Path(path_type=Path),
    help="Write a facts file here: addresses and ports of single daemons, cgroup v1.",
)
@click.option("--force", is_flag=True, help="Replace the files of --out and --facts-out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_(
    folder: Path,
    dump: Path | None,
    qos: Path | None,
    release: str | None,
    out: Path | None,
    facts_out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Make a site file from slurm.conf, gres.conf and slurmdbd's accounts.

    Nothing on the cluster is touched. What a site file cannot say is listed, and hpctools leaves it as it is.

    \b
    Example:  hpctools import --folder /etc/slurm --out site.yaml
    """
    if out is not None and facts_out is not None and out.resolve() == facts_out.resolve():
        raise UsageError("--out and --facts-out name the same file", "name two files")
    for path in (out, facts_out):
        if path is not None:
            _check_place(path, force=force)
    existing = read_existing(folder, dump=dump, qos=qos, ask=_ask, release=_release(release))
    assumed = _stated(folder)
    known = assumed or Facts(cgroup=_cgroup())
    taken = take_over(existing, known, HEADING.format(cluster=existing.accounts.clusters[0]))
    if out is not None:
        save(out, taken.text)
    if facts_out is not None:
        save(facts_out, dump_facts(taken.facts))
    _tell(taken, out, as_json=as_json)
    if facts_out is None:
        for hint in _facts_hints(taken.facts, assumed or Facts()):
            click.echo(f"{hint}: write it with --facts-out {folder / FACTS_FILE}", err=True)
    if taken.facts.storage_password and not known.storage_password:
        click.echo(_PASSWORD_HINT, err=True)


def _check_place(path: Path, *, force: bool) -> None:
    refuse_folder(path)
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "name another file, or replace it with --force")


_PASSWORD_HINT = (
    "the database password is in no file that was written: put it into one of mode 0600, "
    f"and name that as storage_password_file in {FACTS_FILE}"
)


def _stated(folder: Path) -> Facts | None:
    """The facts that a plan will find there; None when there is no such file."""
    path = folder / FACTS_FILE
    return load_facts(path) if path.exists() else None


def _facts_hints(found: Facts, assumed: Facts) -> Iterator[str]:
    """What a plan will not know without a facts file, and would therefore change."""
    if _places(found) != _places(assumed):
        yield "daemons have addresses or ports of their own, which is a fact"
    if found.cgroup != assumed.cgroup:
        yield f"nodes are taken to have cgroups {found.cgroup}, as this host has, and not {assumed.cgroup}"


def _cgroup() -> Literal["v1", "v2", "none"]:
    """The cgroup hierarchy of this machine, as its nodes are likely to have it."""
    return "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"


def _places(facts: Facts) -> tuple[object, ...]:
    return (facts.node_endpoints, facts.node_hostnames, facts.controller_endpoints, facts.slurmdbd_endpoint)


def _ask(argv: Sequence[str]) -> str:
    return run(argv, timeout=ASK_SECONDS).stdout


def _release(stated: str | None) -> Release | None:
    try:
        return parse_release(stated or _ask(["scontrol", "--version"]))
    except ValueError as error:
        raise UsageError(str(error), "name a release such as 22.05 or 24.11.5") from None
    except HpctoolsError:
        raise UsageError("the Slurm release is not known", "name it with --slurm") from None


def _tell(taken: TakenOver, out: Path | None, *, as_json: bool) -> None:
    if as_json:
        site = {"file": str(out)} if out else {"site": taken.text}
        click.echo(json.dumps({**site, "left_out": taken.left_out}, indent=2))
        return
    if out is None:
        click.echo(taken.text, nl=False)
    else:
        click.echo(f"wrote {out}; see what hpctools would change: hpctools plan {out}")
    for each in taken.left_out:
        click.echo(f"left as it is: {each}", err=True)
