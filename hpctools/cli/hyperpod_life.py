"""What create, update, status and delete of `hpctools hyperpod` have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpctools.cli.output import json_line, show
from hpctools.errors import UsageError

if TYPE_CHECKING:
    from hpctools.cli.hyperpod_bundle import Cgroup
    from hpctools.hyperpod.operations.life import Life, Prepare
    from hpctools.hyperpod.operations.watch import Progress


def life_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument SITE and the options of all commands that speak with AWS."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object a line."),
        click.option("--poll", type=click.FloatRange(0.1, 600), default=10, show_default=True,
                     help="Seconds between two questions to AWS while waiting."),
        click.option("--timeout", "minutes", type=click.IntRange(1), default=240, show_default=True,
                     help="Minutes to wait for AWS in one go."),
        click.argument("site_file", metavar="SITE", type=click.Path(path_type=Path)),
    ):  # fmt: skip
        command = option(command)
    return command


def life_of(site_file: Path, as_json: bool, minutes: int, poll: float) -> Life:
    """The cluster of a site; AWS is not asked anything yet.

    Raises:
        SiteError: the site has findings.
        UsageError: the site is not of HyperPod.
        HpctoolsError: boto3 is not installed.
        UnreachableError: no region is named anywhere.
    """
    from hpctools.hyperpod.operations.aws import connect
    from hpctools.hyperpod.operations.life import Life
    from hpctools.hyperpod.operations.watch import RealClock, Watch
    from hpctools.site import load

    site = load(site_file)
    if site.hyperpod is None:
        raise UsageError(
            f"{site_file} has no hyperpod section",
            "add one (docs/hyperpod.md); `hyperpod: {}` takes every default",
        )
    aws = connect(site.aws.region if site.aws else None)
    return Life(
        site, aws, Watch(_reporter(as_json), RealClock(), limit_seconds=60.0 * minutes, pause_seconds=poll)
    )


def _reporter(as_json: bool) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        if as_json:
            show(json_line({"what": progress.what, "state": progress.state, "detail": progress.detail}))
            return
        detail = f"  {progress.detail}" if progress.detail else ""
        click.echo(f"{progress.what}: {progress.state}{detail}", err=True)

    return tell


def preparing(life: Life, release: str | None, cgroup: Cgroup) -> Prepare:
    """How scripts are uploaded and the request is rendered, once the stack is there.

    Nothing is uploaded where the site says where the scripts are (`hyperpod.lifecycle_source`).
    """
    from hpctools.cli.hyperpod_bundle import bundle_of, release_of
    from hpctools.conf.facts import Facts
    from hpctools.hyperpod.bundle_upload import upload
    from hpctools.hyperpod.operations.life import Cluster
    from hpctools.hyperpod.render import render
    from hpctools.hyperpod.stack import Outputs, lifecycle_bucket
    from hpctools.hyperpod.surroundings import surroundings

    facts = Facts(slurm_version=release_of(release), cgroup=cgroup)

    def prepare(outputs: Outputs | None) -> Cluster:
        uri = (life.site.hyperpod.lifecycle_source if life.site.hyperpod else None) or uploaded(outputs)
        return Cluster(render(life.site, surroundings(life.site, outputs, uri)).request, uri)

    def uploaded(outputs: Outputs | None) -> str:
        made = bundle_of(life.site, outputs, facts)
        name = life.site.cluster.name
        owner = life.aws.account()
        bucket = outputs.lifecycle_bucket if outputs else lifecycle_bucket(life.site, owner, life.aws.region)
        sent = upload(made, life.aws.service("s3"), bucket, name, owner=owner)
        life.watch.tell("scripts", "uploaded" if sent.sent else "there already", sent.uri)
        return sent.uri

    return prepare


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """Tell who interrupts us what goes on without us."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(
            f"AWS goes on with what was begun; `hpctools hyperpod {command}` goes on where it was", err=True
        )
        raise


def agreed(question: str, yes: bool, answer: str | None = None) -> bool:
    """Ask a person.

    Args:
        question: what is asked.
        yes: whether it was agreed to beforehand.
        answer: the word that has to be typed; `y` does where it is None.

    Raises:
        UsageError: there is nobody to ask.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("there is nobody to ask", "add --yes")
    if answer is None:
        return click.confirm(question, err=True)
    return bool(click.prompt(question, default="", show_default=False, err=True) == answer)
