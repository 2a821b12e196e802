"""`hpctools hyperpod upload`: a bundle where HyperPod finds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.hyperpod_bundle import Cgroup, bundle_options, node_bundle
from hpctools.cli.output import show
from hpctools.errors import UsageError

if TYPE_CHECKING:
    from hpctools.hyperpod.bundle import NodeBundle
    from hpctools.hyperpod.operations.aws import Aws
    from hpctools.site.model import Site


@click.command()
@click.argument("site_file", metavar="SITE", type=click.Path(path_type=Path))
@click.option("--bucket", help="The bucket (default: what the site or its stack says).")
@click.option("--from", "folder", type=click.Path(path_type=Path), help="A bundle that was made before.")
@bundle_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def upload(
    site_file: Path,
    bucket: str | None,
    folder: Path | None,
    outputs_file: Path | None,
    release: str | None,
    cgroup: Cgroup,
    as_json: bool,
) -> None:
    """Upload a site's bundle to S3, under a prefix that carries its hash, and print the place.

    What is there already is not sent again, and nothing that is there changes: nodes of an earlier bundle
    keep theirs. Interrupted, it goes on when it is run again.

    \b
    Examples:
      hpctools hyperpod upload site.yaml --outputs stack.json
      hpctools hyperpod render site.yaml --outputs stack.json \\
        --lifecycle "$(hpctools hyperpod upload site.yaml --outputs stack.json)"
    """
    from hpctools.hyperpod.bundle import read_bundle
    from hpctools.site import load

    if folder is not None and outputs_file is not None:
        raise UsageError("--from is a bundle that was made already", "leave --outputs out, or --from")
    site = load(site_file)
    made = read_bundle(folder) if folder else node_bundle(site_file, outputs_file, release, cgroup)
    _carry_out(site, made, bucket, outputs_file, as_json)


def _carry_out(
    site: Site, made: NodeBundle, bucket: str | None, outputs_file: Path | None, as_json: bool
) -> None:
    from hpctools.hyperpod.bundle_upload import upload as send
    from hpctools.hyperpod.operations.aws import connect

    account = connect(site.aws.region if site.aws else None)
    name, owner = (bucket, "") if bucket else _bucket(site, account, outputs_file)
    store, doing = account.service("s3"), lambda path: click.echo(f"sent {path}", err=True)
    sent = send(made, store, name, site.cluster.name, doing, owner)
    if not sent.sent:
        click.echo("all of it was there already", err=True)
    show({"uri": sent.uri, "hash": made.hash, "sent": list(sent.sent)} if as_json else f"{sent.uri}\n")


def _bucket(site: Site, account: Aws, outputs_file: Path | None) -> tuple[str, str]:
    """The bucket that the stack gave out, that the site names, or that the stack would make; its account."""
    from hpctools.cli.hyperpod_render import outputs_in
    from hpctools.hyperpod.stack import lifecycle_bucket

    if outputs_file is not None and (told := outputs_in(outputs_file).get("LifecycleBucket")):
        return told, ""
    owner = account.account()
    return lifecycle_bucket(site, owner, account.region), owner
