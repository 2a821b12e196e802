"""`hpctools hyperpod bundle`: what each node of a cluster on HyperPod configures itself from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from hpctools.cli.output import show
from hpctools.errors import UsageError

if TYPE_CHECKING:
    from hpctools.conf.facts import Facts
    from hpctools.hyperpod.bundle import NodeBundle
    from hpctools.hyperpod.payload import AgentPart, SlurmPart
    from hpctools.hyperpod.stack import Outputs
    from hpctools.site.model import Site

Cgroup = Literal["v1", "v2", "none"]


def bundle_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say what goes into a bundle."""
    path = click.Path(path_type=Path)
    outputs = "What the stack gave out: what `aws cloudformation describe-stacks` prints."
    options = (
        click.option("--outputs", "outputs_file", type=path, help=outputs),
        click.option("--slurm", "release", help="The Slurm release on the nodes, if not the site's (24.11)."),
        click.option("--cgroup", type=click.Choice(["v1", "v2", "none"]), default="v2", show_default=True),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("site_file", metavar="SITE", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Write the bundle here.")
@bundle_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bundle(
    site_file: Path, out: Path, outputs_file: Path | None, release: str | None, cgroup: Cgroup, as_json: bool
) -> None:
    """Put the lifecycle scripts and a site's settings into one folder.

    The same site gives the same files. No secret is among them. `hpctools hyperpod upload` puts such a bundle
    where HyperPod finds it. Where the site's stack makes file systems, a database or a load balancer,
    --outputs says where they are. Nodes of your own take settings and single steps of it (docs/identity.md).

    \b
    Example:  hpctools hyperpod bundle site.yaml --out lifecycle --outputs stack.json
    """
    from hpctools.hyperpod.bundle import write_bundle

    made = node_bundle(site_file, outputs_file, release, cgroup)
    write_bundle(made, out)
    told = {"folder": str(out), "hash": made.hash, "files": [file.path for file in made.files]}
    show(json.dumps(told, indent=2) + "\n" if as_json else f"{out}: {len(made.files)} files, {made.hash}\n")


def node_bundle(
    site_file: Path, outputs_file: Path | None, release: str | None, cgroup: Cgroup
) -> NodeBundle:
    """Make the bundle of a site.

    Args:
        site_file: the site.
        outputs_file: what its stack gave out; None where there is no stack.
        release: the Slurm release on the nodes; the site's when None.
        cgroup: the cgroup hierarchy on the nodes.

    Raises:
        SiteError: the site has findings.
        UsageError: there is no such release, or the file holds no outputs.
        HpctoolsError: the site needs the outputs of its stack; a secret would be in the bundle.
    """
    from hpctools.cli.hyperpod_render import outputs_in
    from hpctools.conf.facts import Facts
    from hpctools.hyperpod.stack import read_outputs
    from hpctools.site import load

    site = load(site_file)
    outputs = read_outputs(site, outputs_in(outputs_file)) if outputs_file is not None else None
    return bundle_of(site, outputs, Facts(slurm_version=release_of(release), cgroup=cgroup))


def bundle_of(site: Site, outputs: Outputs | None, facts: Facts) -> NodeBundle:
    """Make the bundle of a site that was read.

    Raises:
        HpctoolsError: as `node_bundle`.
    """
    from hpctools.hyperpod import bundle as bundles
    from hpctools.hyperpod.payload import settings

    if outputs is None:
        _refuse_unknown(site)
    slurm = _slurm_part(site, facts)
    told = settings(site, slurm, outputs, _agent_part(site))
    return bundles.bundle(told, slurm.files, _provisioning(site, outputs))


def _slurm_part(site: Site, facts: Facts) -> SlurmPart:
    """Compile the site for a slurm.conf that the agent writes; with all nodes that each group may have."""
    from hpctools.conf import include
    from hpctools.conf.compiler import compile
    from hpctools.hyperpod.payload import SlurmPart

    groups = {group.name: group.names for group in site.node_groups if group.role == "compute"}
    everything = replace(facts, node_counts={name: len(names) for name, names in groups.items()})
    compiled = compile(site, everything)
    beside = include.beside(compiled)
    accounts = json.dumps(include.account_calls(compiled), indent=1) + "\n"
    return SlurmPart(
        files={
            include.INCLUDE: include.include_text(compiled, groups),
            "slurmdbd.conf": include.slurmdbd_file(compiled).text,
            "associations.json": accounts,
            **{file.path: file.text for file in beside},
        },
        beside=tuple(file.path for file in beside),
        gres=include.gres_by_group(site, everything),
    )


def _agent_part(site: Site) -> AgentPart | None:
    """The files of the login nodes' agent and sshd; nothing where the nodes do not set them up."""
    from importlib.resources import files

    from hpctools.hyperpod.payload import AgentPart
    from hpctools.login import sshd
    from hpctools.login.agent.from_site import agent_settings, settings_text

    if site.login.agent is None:
        return None
    unit = files("hpctools.login").joinpath("systemd/hp-login-agent.service")
    told = (f"/etc/ssh/{sshd.PATH}", sshd.configuration())
    return AgentPart(settings_text(agent_settings(site)), unit.read_text(encoding="utf-8"), told)


def _provisioning(site: Site, outputs: Outputs | None) -> dict[str, str]:
    """provisioning_parameters.json, which HyperPod's legacy style wants beside the scripts."""
    from hpctools.hyperpod.advise import advise, of_site
    from hpctools.hyperpod.files import PROVISIONING
    from hpctools.hyperpod.render import render
    from hpctools.hyperpod.surroundings import surroundings

    if site.hyperpod is None or advise(of_site(site)).style != "legacy":
        return {}
    # The file does not name the place that it will be uploaded to.
    rendered = render(site, surroundings(site, outputs, "s3://sagemaker-bundle/"))
    return {PROVISIONING: rendered.files[PROVISIONING]} if rendered.provisioning is not None else {}


def _refuse_unknown(site: Site) -> None:
    """What only the stack knows would be missing on the nodes without a word: mounts, database, balancer."""
    unknown = " and ".join(_of_the_stack(site))
    if unknown:
        raise UsageError(
            f"nobody knows {unknown} before the site's stack is there",
            "give what the stack gave out (--outputs)",
        )


def _of_the_stack(site: Site) -> Iterator[str]:
    """What the stack makes and the nodes have to be told."""
    if site.aws is None:
        return
    made = [system.name for system in site.aws.file_systems if not system.existing]
    if made:
        yield f"the addresses of the file systems {', '.join(made)}"
    stated = site.hyperpod is not None and site.hyperpod.accounting_database is not None
    if site.aws.accounting_database is not None and not stated:
        yield "the address of the accounting database"
    login = site.aws.login
    if login.load_balancer is not None and login.scaling is None and site.lifecycle.login_balance is None:
        yield "the load balancer's list of login nodes"


def release_of(text: str | None) -> tuple[int, ...] | None:
    """The release that an option names; None when it names none.

    Raises:
        UsageError: it is no release.
    """
    from hpctools.slurm.versions import parse_release

    try:
        return parse_release(text) if text else None
    except ValueError as error:
        raise UsageError(str(error), "name a release such as 22.05 or 24.11.5") from None
