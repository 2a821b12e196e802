"""`hpctools login function`: the Lambda function of Session Manager, as AWS takes it."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from hpctools.cli.output import save, show
from hpctools.errors import HpctoolsError, UsageError


@click.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the zip goes; nothing else is printed if that is a pipe.",
)
@click.option(
    "--template",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the CloudFormation template of its stack goes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def function(out: Path, template: Path | None, as_json: bool) -> None:
    """Make the zip of the Lambda function that counts Session Manager's sessions with those over ssh.

    It has what the function needs and nothing else; boto3 is Lambda's own. The same release of hpctools
    makes the same bytes, on any machine. CloudFormation looks for new code under a new name only, so the
    name that is proposed for the bucket tells the bytes. What follows is in docs/login.md.

    \b
    Examples:
      hpctools login function --out function.zip
      hpctools login function --out function.zip --template function.yaml
    """
    from hpctools.login.session_manager.package import function_zip

    made = function_zip()
    _save(out, made)
    if template is not None:
        save(template, files("hpctools.login.session_manager").joinpath("function.yaml").read_text("utf-8"))
    digest = hashlib.sha256(made).hexdigest()
    key = f"hpctools/session-limit-{digest[:12]}.zip"
    told = {"file": str(out), "bytes": len(made), "sha256": digest, "key": key}
    if out.exists() and not out.is_file():  # a pipe, which may be our standard output: it is the zip's
        return
    show(told | ({"template": str(template)} if template else {}) if as_json else _text(told, template))


def _text(told: dict[str, Any], template: Path | None) -> str:
    more = f"{template}\n" if template is not None else ""
    return (
        f"{told['file']}: {told['bytes']} bytes, sha256 {told['sha256']}\n{more}"
        f"next: aws s3 cp {told['file']} s3://BUCKET/{told['key']}\n"
    )


def _save(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all; a pipe or a device is written to."""
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", "name a file")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.resolve().with_name(f".{path.name}.new")
        new.write_bytes(data)
        new.replace(path.resolve())
    except OSError as error:
        raise HpctoolsError(
            f"cannot write {error.filename or path}: {error.strerror}",
            "check the folder's permissions and free space",
        ) from None
