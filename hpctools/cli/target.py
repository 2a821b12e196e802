"""What plan, preflight, apply and drift are about: a site, its folder, its facts and its Slurm release."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpctools.cli.places import SITE_VARIABLE, usual_site
from hpctools.errors import CommandError, UsageError

if TYPE_CHECKING:
    from hpctools.conf.bundle import Bundle
    from hpctools.conf.facts import Facts
    from hpctools.site.model import Site
    from hpctools.slurm.versions import Release

STATE_FOLDER = Path(os.environ.get("HPCTOOLS_STATE") or "/var/lib/hpctools")


@dataclass(frozen=True)
class Target:
    """A site and where it is to be.

    Attributes:
        site: what the site file says.
        site_file: where it was read.
        folder: Slurm's configuration folder.
        facts: what there is; with the release of the installed Slurm, where one is installed.
        bundle: the compiled site.
        warnings: what a person should know.
    """

    site: Site
    site_file: Path
    folder: Path
    facts: Facts
    bundle: Bundle
    warnings: tuple[str, ...] = ()


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument SITE and the options --folder and --facts."""
    path = click.Path(path_type=Path)
    command = click.option(
        "--facts", "facts_file", type=path, help="Facts file (default: facts.yaml in the folder)."
    )(command)
    command = click.option(
        "--folder", type=path, help="Slurm's folder (default: what the site says, /etc/slurm)."
    )(command)
    return click.argument("site_file", metavar="[SITE]", required=False, type=path)(command)


def find_target(site_file: Path | None, folder: Path | None, facts_file: Path | None) -> Target:
    """Read the site and the facts, and compile.

    Args:
        site_file: the site; $HPCTOOLS_SITE when None, else site.yaml in the folder.
        folder: the configuration folder; what the site says when None.
        facts_file: the facts; facts.yaml in the folder when None, and none when there is no such file.

    Raises:
        UsageError: no site is named, and none is in its usual place.
        SiteError: the site has findings.
        HpctoolsError: the facts cannot be read.
    """
    from hpctools.conf.compiler import compile
    from hpctools.site import load

    path = site_file or _usual_site(folder)
    site = load(path)
    place = folder or Path(site.cluster.configuration.folder)
    facts = _facts(facts_file, place)
    installed = installed_release()
    facts = facts if facts.slurm_version or not installed else replace(facts, slurm_version=installed)
    bundle = compile(site, facts)
    warnings = (*_warnings(site, facts), *_of_other_hosts(bundle, path))
    return Target(site, path, place, facts, bundle, warnings)


def own_target(site_file: Path | None, folder: Path | None, facts_file: Path | None) -> Target:
    """`find_target`, for what compares Slurm's files with the site's or writes them.

    Raises:
        UsageError: also when these files are HyperPod's.
    """
    found = find_target(site_file, folder, facts_file)
    refuse_hyperpod(found.site, found.facts)
    return found


def refuse_hyperpod(site: Site, facts: Facts) -> None:
    """Leave the files of HyperPod's agent alone: a whole slurm.conf of ours knows none of its nodes.

    A sandbox, where GPUs are made up, runs such a site on files of its own.

    Raises:
        UsageError: the site is of HyperPod.
    """
    if site.cluster.provider == "hyperpod" and not facts.made_up_gpus:
        raise UsageError(
            f"{site.cluster.name} is on HyperPod, whose agent writes slurm.conf: nothing was changed",
            "use `hpctools hyperpod update`, and bring its nodes the new scripts (docs/lifecycle.md)",
        )


def of_then(kept: Mapping[str, str]) -> tuple[Site, Facts]:
    """The site and the facts that the history keeps beside a change (`return_to.documents`).

    Raises:
        HpctoolsError: this release does not understand them.
    """
    from hpctools.conf.apply.history import FACTS, SITE
    from hpctools.conf.facts_file import load_facts
    from hpctools.site import load

    with tempfile.TemporaryDirectory(prefix="hpctools-") as folder:
        for name, text in kept.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        return load(Path(folder, SITE)), load_facts(Path(folder, FACTS))


def _usual_site(folder: Path | None) -> Path:
    path = usual_site(os.environ, folder)
    if not os.environ.get(SITE_VARIABLE) and not path.exists():
        raise UsageError(
            f"no site file is named, and there is no {path}", f"name one, or set {SITE_VARIABLE}"
        )
    return path


def _facts(path: Path | None, folder: Path) -> Facts:
    from hpctools.conf.facts import Facts
    from hpctools.conf.facts_file import FACTS_FILE, load_facts

    usual = folder / FACTS_FILE
    if path is None and not usual.exists():
        return Facts()
    return load_facts(path or usual)


def installed_release() -> Release | None:
    """The release of the Slurm on this machine; None when there is none.

    slurmctld tells it without a slurm.conf; the commands, on a machine that has only them, want one.
    """
    from hpctools.slurm import run
    from hpctools.slurm.versions import parse_release

    for program in (("slurmctld", "-V"), ("scontrol", "--version")):
        try:
            return parse_release(run.run(program, timeout=10).stdout)
        except (CommandError, ValueError):
            continue
    return None


def _warnings(site: Site, facts: Facts) -> Iterator[str]:
    from hpctools.slurm.versions import parse_release, spell_release

    stated, found = site.cluster.slurm, facts.slurm_version
    if stated and found and parse_release(stated)[:2] != found[:2]:
        yield f"the site says Slurm {stated}, and {spell_release(found)} is installed: planned for the latter"
    if site.unread_accounts:
        accounts = ", ".join(sorted(site.unread_accounts))
        yield f"the directory was not read for {accounts}: nobody leaves them until `hpctools identity sync`"


def _of_other_hosts(bundle: Bundle, site: Path) -> Iterator[str]:
    """Neither plan nor apply reads or writes another host's files."""
    for host, files in bundle.elsewhere.items():
        names = ", ".join(file.path for file in files)
        yield (
            f"{names} belongs on {host}, and is neither compared nor written: "
            f"`hpctools render {site} --out DIR` writes DIR/{host}/"
        )
