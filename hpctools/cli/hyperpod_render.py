"""`hpctools hyperpod render SITE`: the files that HyperPod creates the site's cluster from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from hpctools.cli.output import save, show
from hpctools.errors import UsageError
from hpctools.hyperpod.document import read
from hpctools.hyperpod.files import PROVISIONING
from hpctools.hyperpod.render import Rendered
from hpctools.hyperpod.render import render as rendered_of
from hpctools.hyperpod.stack import read_outputs
from hpctools.hyperpod.surroundings import surroundings
from hpctools.site import load


@click.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the files into this folder.")
@click.option(
    "--outputs",
    type=click.Path(path_type=Path),
    help="What the stack gave out: `aws cloudformation describe-stacks`, or an object of key and value.",
)
@click.option("--lifecycle", metavar="S3_URI", help="Where the lifecycle scripts were uploaded.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def render(site: Path, out: Path | None, outputs: Path | None, lifecycle: str | None, as_json: bool) -> None:
    """Write cluster-config.json and, in the legacy style, provisioning_parameters.json.

    Prints the files, each under its name, or writes them with --out. Nothing at AWS is touched.

    \b
    Example:  hpctools hyperpod render site.yaml --out cluster
    """
    declared = load(site)
    given = read_outputs(declared, outputs_in(outputs)) if outputs is not None else None
    made = rendered_of(declared, surroundings(declared, given, lifecycle))
    written = _written(made, out) if out is not None else []
    if as_json:
        show(json.dumps({"written": written, **_described(made)}, indent=2) + "\n")
    elif out is None:
        show("\n".join(f"==> {name} <==\n{text}" for name, text in made.files.items()))
    else:
        show("\n".join([*(f"wrote {path}" for path in written), *_told(made)]) + "\n")


def _described(made: Rendered) -> Mapping[str, object]:
    return {
        "style": made.advice.style,
        "strategy": made.advice.strategy,
        "reasons": made.advice.reasons,
        "files": made.files,
    }


def _told(made: Rendered) -> list[str]:
    told = [f"style {made.advice.style}: {reason}" for reason in made.advice.reasons[:1]]
    if made.provisioning is not None:
        told.append(f"{PROVISIONING} belongs beside the lifecycle scripts in S3")
    return told


def _written(made: Rendered, folder: Path) -> list[str]:
    left_over = folder / PROVISIONING
    if made.provisioning is None and left_over.exists():
        raise UsageError(
            f"{left_over}: is of the legacy style, and HyperPod refuses it beside SlurmConfig",
            "take it away, here and in S3, or name another folder",
        )
    for name, text in made.files.items():
        save(folder / name, text)
    return [str(folder / name) for name in made.files]


def outputs_in(path: Path) -> Mapping[str, str]:
    """Read what a stack gave out, by key.

    Raises:
        UsageError: the file holds no outputs.
    """
    document, faults = read(path)
    if faults:
        raise UsageError("\n".join(map(str, faults)), "give the stack's outputs as JSON")
    stacks = list(document.root.at("Stacks").each())
    root = stacks[0] if stacks else document.root
    pairs = [(each.at("OutputKey").text, each.at("OutputValue").text) for each in root.at("Outputs").each()]
    found = {key: value for key, value in pairs if key and value is not None}
    found = found or {key: text for key in root.keys if (text := root.at(key).text) is not None}
    if not found:
        raise UsageError(f"{path}: holds no outputs of a stack", "give what describe-stacks prints")
    return found
