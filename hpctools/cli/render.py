"""`hpctools render SITE`: the Slurm configuration that a site file stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click

from hpctools import conf
from hpctools.errors import UsageError
from hpctools.site import Finding, load, warnings
from hpctools.slurm.versions import Release, parse_release

_MOST_WARNINGS = 5


@click.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the files into this folder.")
@click.option("--slurm", "release", help="The Slurm release (default: the site's, else 24.11).")
@click.option("--cgroup", type=click.Choice(["v1", "v2", "none"]), default="v2", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def render(
    site: Path, out: Path | None, release: str | None, cgroup: Literal["v1", "v2", "none"], as_json: bool
) -> None:
    """Compile a site file to Slurm's configuration.

    Prints the files, each under its name, or writes them with --out; warnings go to standard error.
    Nothing on a cluster is touched.

    \b
    Example:  hpctools render site.yaml --out /tmp/conf
    """
    facts = conf.Facts(slurm_version=_release(release), cgroup=cgroup)
    read = load(site)
    bundle = conf.compile(read, facts)
    _warn(warnings(read), site)
    if out is None:
        click.echo(_bundle_json(bundle) if as_json else _texts(bundle), nl=as_json)
        return
    written = [str(path) for path in _write(bundle, out)]
    click.echo(
        json.dumps({"folder": str(out), "written": written}, indent=2) if as_json else _told(out, written)
    )


def _warn(findings: Sequence[Finding], site: Path) -> None:
    """Tell the first warnings beside the output; all of them are the business of `validate`."""
    for finding in findings[:_MOST_WARNINGS]:
        click.echo(finding, err=True)
    if len(findings) > _MOST_WARNINGS:
        more = len(findings) - _MOST_WARNINGS
        click.echo(f"{site}: {more} more warnings; hpctools validate shows them", err=True)


def _release(text: str | None) -> Release | None:
    try:
        return parse_release(text) if text else None
    except ValueError as error:
        raise UsageError(str(error), "name a release such as 22.05 or 24.11.5") from None


def _write(bundle: conf.Bundle, folder: Path) -> Iterator[Path]:
    """Files of other hosts come into folders of the hosts' names."""
    yield from conf.write(bundle, folder)
    for host, files in bundle.elsewhere.items():
        yield from conf.write(conf.Bundle(files, bundle.accounts), folder / host)


def _named(bundle: conf.Bundle) -> Iterator[tuple[str, conf.File]]:
    """Every file; those of other hosts with the host's name in front."""
    yield from ((file.path, file) for file in bundle.files)
    for host, files in bundle.elsewhere.items():
        yield from ((f"{host}/{file.path}", file) for file in files)


def _texts(bundle: conf.Bundle) -> str:
    return "\n".join(f"==> {path} ({file.mode:04o}) <==\n{file.text}" for path, file in _named(bundle))


def _bundle_json(bundle: conf.Bundle) -> str:
    files = [{"path": path, "mode": f"{file.mode:04o}", "text": file.text} for path, file in _named(bundle)]
    return json.dumps({"files": files, "accounts": asdict(bundle.accounts)}, indent=2, default=sorted)


def _told(folder: Path, written: list[str]) -> str:
    return "\n".join(f"wrote {path}" for path in written) or f"{folder} is up to date"
