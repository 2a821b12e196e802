"""`hpctools identity ...`: what nodes are told of the people's directory, and who is in its groups."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpctools.cli.output import json_line, save, show
from hpctools.cli.places import usual_site
from hpctools.errors import HpctoolsError, UsageError

if TYPE_CHECKING:
    from hpctools.identity.people import GroupPeople
    from hpctools.site.identity import Identity
    from hpctools.site.model import Site


@click.group()
def identity() -> None:
    """The directory that knows the people: what nodes are told of it, and who is in its groups.

    SITE is $HPCTOOLS_SITE when it is left out, or else /etc/slurm/site.yaml.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    path = click.Path(path_type=Path)
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)
    return click.argument("site_file", metavar="[SITE]", required=False, type=path)(command)


@identity.command()
@_options
def sssd(site_file: Path | None, as_json: bool) -> int:
    """Print the sssd.conf of the nodes, without the reader's password.

    \b
    Example:  hpctools identity sssd
    """
    from hpctools.identity.sssd import login_groups, sssd_conf

    site, _, _ = _read(site_file)
    text = sssd_conf(site)
    show({"sssd_conf": text, "login_groups": list(login_groups(site))} if as_json else text)
    return 0


@identity.command()
@_options
def groups(site_file: Path | None, as_json: bool) -> int:
    """Ask the directory who is in the site's groups, and change nothing.

    \b
    Exit code: 0; 1 when somebody is refused or a group is not as it should be; 3 when the directory does not
    tell.

    \b
    Example:  hpctools identity groups
    """
    site, stated, _ = _read(site_file)
    people = _people(site, stated)
    from hpctools.cli.identity_text import groups_json, groups_text

    show(json_line(groups_json(people)) if as_json else groups_text(people))
    return 1 if any(each.refused or each.found != 1 for each in people) else 0


@identity.command()
@_options
@click.option(
    "--accept-removals",
    "accepted",
    multiple=True,
    metavar="GROUP",
    help="Let everybody leave this group whom the directory does not name (also: it is empty, or gone).",
)
@click.option("--dry-run", is_flag=True, help="Tell what would change, and write nothing.")
def sync(site_file: Path | None, as_json: bool, accepted: tuple[str, ...], dry_run: bool) -> int:
    """Write who is in the site's groups beside the site file, for plan and apply.

    A group that is gone, empty all at once, or that loses many stays as it was until --accept-removals names
    it. When the directory does not answer, nothing is written.

    \b
    Exit code: 0; 1 when somebody is refused or a group stays as it was; 3 when the directory does not tell.

    \b
    Example:  hpctools identity sync --dry-run
    """
    from hpctools.cli.identity_text import sync_json, sync_text
    from hpctools.identity.sync import synchronize
    from hpctools.site.members import members_file, read_members, spell_members

    site, stated, path = _read(site_file)
    strangers = [name for name in accepted if name not in site.directory_groups]
    if strangers:
        known = ", ".join(site.directory_groups) or "none"
        raise UsageError(f"no account has {strangers[0]!r} in members_from", f"the site's groups: {known}")
    place = members_file(site, path) or path.with_name(stated.members_file)
    before = read_members(place)
    people = _people(site, stated)
    found = synchronize(before or {}, people, percent=stated.largest_removal_percent, accepted=accepted)
    changed = before is None or spell_members(before) != spell_members(found.groups)
    if changed and not dry_run:
        save(place, spell_members(found.groups))
    written = changed and not dry_run
    its_agents = site.cluster.provider == "hyperpod"
    text = sync_text(found, place, changed, dry_run, hyperpod=its_agents)
    show(json_line(sync_json(found, place, written)) if as_json else text)
    return 1 if found.problems else 0


@identity.command("run-as")
@_options
def run_as(site_file: Path | None, as_json: bool) -> int:
    """Print who somebody is in a Session Manager session: tags, and the policy that denies others.

    \b
    Example:  hpctools identity run-as
    """
    from hpctools.cli.identity_text import run_as_json, run_as_text

    site, _, _ = _read(site_file)
    show(json_line(run_as_json(site)) if as_json else run_as_text(site))
    return 0


def _read(site_file: Path | None) -> tuple[Site, Identity, Path]:
    """The site, its directory, and where the site file is."""
    from hpctools.site import load

    path = site_file or usual_site(os.environ)
    site = load(path)
    if site.identity is None:
        raise HpctoolsError(f"{path} has no section `identity`", "see docs/identity.md")
    return site, site.identity, path


def _people(site: Site, stated: Identity) -> tuple[GroupPeople, ...]:
    """Ask the directory."""
    from hpctools.identity.ldapsearch import connected
    from hpctools.identity.people import judge
    from hpctools.identity.reading import read_groups
    from hpctools.identity.secret import bind_password

    if not site.directory_groups:
        raise HpctoolsError(
            "no department or lab has `members_from`", "see docs/identity.md, who works where"
        )
    with connected(stated, bind_password(stated.bind)) as directory:
        return judge(stated, read_groups(stated, site.directory_groups, directory))
