"""`hpctools hyperpod convert FILES --to STYLE`: a cluster's files in the other of HyperPod's two styles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from hpctools.cli.output import save, show
from hpctools.errors import UsageError
from hpctools.hyperpod.check import check
from hpctools.hyperpod.convert import Converted, to_legacy, to_slurmconfig
from hpctools.hyperpod.files import CLUSTER_CONFIG, PROVISIONING, Files, locate
from hpctools.hyperpod.render import text_of


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, readable=False), metavar="FILE|FOLDER...")
@click.option("--to", "style", type=click.Choice(["slurmconfig", "legacy"]), required=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write the files into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def convert(
    paths: tuple[Path, ...], style: Literal["slurmconfig", "legacy"], out: Path | None, as_json: bool
) -> int:
    """Convert a cluster's files; they are checked first.

    What the other style has no word for is told on standard error; then the command exits with 1, since the
    new files do not say all that the old ones did.

    \b
    Example:  hpctools hyperpod convert cluster-config.json --to slurmconfig
    """
    if not paths:
        raise UsageError(
            "no file was named", "hpctools hyperpod convert cluster-config.json --to slurmconfig"
        )
    files, faults = locate(paths)
    report = check(files, faults)
    made = (to_slurmconfig if style == "slurmconfig" else to_legacy)(files, report.errors)
    texts = {CLUSTER_CONFIG: text_of(made.request)}
    if made.provisioning is not None:
        texts[PROVISIONING] = text_of(made.provisioning)
    if out is not None:
        _write(out, texts, files)
    _tell(made, texts, out, as_json)
    return 1 if made.lost else 0


def _write(folder: Path, texts: dict[str, str], files: Files) -> None:
    sources = {Path(each.file).resolve() for each in (files.cluster, files.provisioning) if each is not None}
    if sources & {(folder / name).resolve() for name in (CLUSTER_CONFIG, PROVISIONING)}:
        raise UsageError(f"{folder}: holds the files that are converted", "name another folder")
    if PROVISIONING not in texts and (folder / PROVISIONING).exists():
        raise UsageError(f"{folder / PROVISIONING}: would stand beside SlurmConfig", "name another folder")
    for name, text in texts.items():
        save(folder / name, text)


def _tell(made: Converted, texts: dict[str, str], out: Path | None, as_json: bool) -> None:
    written = [str(out / name) for name in texts] if out is not None else []
    if as_json:
        told = {"written": written, "files": texts, "lost": made.lost, "changed": made.changed}
        show(json.dumps(told, indent=2) + "\n")
        return
    for kind, notes in (("lost", made.lost), ("mind", made.changed)):
        for note in notes:
            click.echo(f"{kind}: {note}", err=True)
    if out is None:
        show("\n".join(f"==> {name} <==\n{text}" for name, text in texts.items()))
    else:
        show("".join(f"wrote {path}\n" for path in written))
