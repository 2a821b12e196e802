"""The manifest of an AWS Data Export: which files are one delivery of one billing period. Pure.

Source: AWS Data Exports user guide, "Understanding export delivery": a month's newest delivery has its
manifest in `PREFIX/NAME/metadata/BILLING_PERIOD=YYYY-MM/`, written after its files; these are under
`PREFIX/NAME/data/`, in a folder of their own for each delivery unless the export overwrites.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hpctools.budget.month import Month
from hpctools.budget.refusals import clip, refuse_line

_LISTS = ("dataFiles", "reportKeys")
_IDS = ("executionId", "assemblyId")
_SUFFIXES = (".csv.gz", ".csv", ".parquet")
_MOST_FILES = 10_000


@dataclass(frozen=True)
class Export:
    """Where a Data Export is delivered.

    Attributes:
        prefix: without slashes around it; may be empty.
        name: the export's.
    """

    bucket: str
    prefix: str
    name: str

    @property
    def folder(self) -> str:
        """What all its keys begin with."""
        return f"{self.prefix}/{self.name}/" if self.prefix else f"{self.name}/"

    def manifests(self, month: Month) -> tuple[str, ...]:
        """Where the manifest of a month's newest delivery may be."""
        folders = [f"{self.folder}metadata/{word}={month}/" for word in ("BILLING_PERIOD", "billing_period")]
        return tuple(
            f"{folder}{name}"
            for folder in folders
            for name in (f"{self.name}-Manifest.json", "Manifest.json")
        )


@dataclass(frozen=True)
class Delivery:
    """One delivery of one billing period.

    Attributes:
        id: AWS's name of it.
        keys: of its files.
    """

    id: str
    keys: tuple[str, ...]


def read_manifest(content: bytes, export: Export, where: str) -> Delivery:
    """What a manifest says.

    Raises:
        BudgetError: it is none, or names files that are no data of this export.
    """
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        refuse_line(where, "is not a manifest", "expected a JSON object")
    files = next((said[name] for name in _LISTS if name in said), None)
    if not isinstance(files, list) or len(files) > _MOST_FILES:
        refuse_line(where, "does not list its files", f"expected a list as {' or '.join(_LISTS)}")
    keys = tuple(_key(name, export, where) for name in files)
    if len(set(keys)) != len(keys):
        refuse_line(where, "lists a file twice", "check the export")
    return Delivery(next((str(said[name]) for name in _IDS if name in said), ""), keys)


def _key(name: Any, export: Export, where: str) -> str:
    """A file's key; it must be one of this export's data."""
    if not isinstance(name, str):
        refuse_line(where, f"{clip(name)} is not a file", "expected s3://BUCKET/KEY")
    key = name.removeprefix(f"s3://{export.bucket}/")
    inside = f"{export.folder}data/"
    parts = unquote(key).split("/")
    if not key.startswith(inside) or {"", ".", ".."} & set(parts) or "\\" in key:
        refuse_line(
            where, f"{clip(name)} is not a file of this export", f"expected s3://{export.bucket}/{inside}..."
        )
    if not key.endswith(_SUFFIXES):
        refuse_line(where, f"{clip(name)} is no data", f"expected {', '.join(_SUFFIXES)}")
    return key
