"""`hpctools hyperpod template`: the CloudFormation template of what is around a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from hpctools.cli.output import save, show
from hpctools.errors import UsageError

FILE = "infrastructure.yaml"
COPIES_FILE = "infrastructure-copies.yaml"


@click.command()
@click.argument("site_file", metavar="SITE", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write into this folder instead.")
@click.option("--copies", "only_copies", is_flag=True, help="The template of the region of the copies.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of YAML; with --out, what was written.")
def template(site_file: Path, out: Path | None, only_copies: bool, as_json: bool) -> None:
    """Show the CloudFormation template that a site's `aws` section makes.

    The same site gives the same text. No account, region or secret is in it, so anybody may review it and
    deploy it by hand; `hpctools hyperpod create` deploys it as it is shown here.

    \b
    Example:  hpctools hyperpod template site.yaml > infrastructure.yaml
    """
    from hpctools.hyperpod.stack import as_yaml, copies, infrastructure
    from hpctools.site import load

    site = load(site_file)
    main, other = infrastructure(site), copies(site)
    if only_copies and other is None:
        raise UsageError("the site has no copies of its checkpoints", "see buckets.checkpoints.replicate_to")
    if out is None:
        chosen = other if only_copies and other is not None else main
        show(chosen if as_json else as_yaml(chosen))
        return
    written = [(out / FILE, main)] + ([(out / COPIES_FILE, other)] if other is not None else [])
    for path, each in written:
        save(path, as_yaml(each))
    names = [str(path) for path, _ in written]
    show({"folder": str(out), "written": names} if as_json else "".join(f"wrote {name}\n" for name in names))
