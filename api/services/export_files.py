"""Files of exports on this disk: Parquet and CSV, checked before they are opened, read a file at a time."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from polars.exceptions import NoDataError, PanicException, PolarsError

from hpctools.errors import BudgetError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileLimits:
    """What a file of an export may be at most: none of AWS's comes near.

    Attributes:
        packed: bytes of the file.
        unpacked: bytes of CSV text.
        lines: of a Parquet file.
    """

    packed: int = 2 << 30
    unpacked: int = 8 << 30
    lines: int = 20_000_000


LIMITS = FileLimits()


def read_columns(
    path: Path, names: Sequence[str], prefix: str, where: str, limits: FileLimits = LIMITS
) -> pl.DataFrame | None:
    """The columns of a file that are wanted, with the types that the file has; None of a file with nothing.

    CSV has text only.

    Args:
        path: its name ends in `.parquet`, `.csv` or `.csv.gz`.
        names: the columns; those that the file lacks are left out.
        prefix: columns that begin with it are wanted as well.
        where: what to call the file in errors.

    Raises:
        BudgetError: the file is damaged, or larger than a bill can be.
        OSError: the disk of this machine fails, or is full.
    """
    if path.stat().st_size == 0:
        # AWS overwrites a chunk that it needs no more with nothing.
        return None
    try:
        return (
            _parquet(path, names, prefix, where, limits)
            if path.suffix == ".parquet"
            else _csv(path, names, prefix, where, limits)
        )
    except NoDataError:
        return None
    except OSError as error:
        if error.errno is not None:  # of our disk; a damaged gzip file has none
            raise
        raise _unreadable(where, error) from None
    except (PolarsError, PanicException, EOFError, zlib.error, UnicodeError, csv.Error) as error:
        raise _unreadable(where, error) from None


def _unreadable(where: str, error: BaseException) -> BudgetError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return BudgetError(
        f"{where}: the file cannot be read: {reason[:200]}", "check the export; nothing was stored"
    )


def _parquet(path: Path, names: Sequence[str], prefix: str, where: str, limits: FileLimits) -> pl.DataFrame:
    scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
    count = scan.select(pl.len()).collect().item()
    if count > limits.lines:
        raise BudgetError(f"{where}: has {count} lines, expected at most {limits.lines}", "check the export")
    return _chosen(scan, names, prefix)


def _csv(path: Path, names: Sequence[str], prefix: str, where: str, limits: FileLimits) -> pl.DataFrame:
    plain = path if path.suffix == ".csv" else _unpack(path, where, limits)
    _check_lines(plain, where)
    # Everything as text: what is money is for the normaliser to say. Lines with too many fields are an error.
    scan = pl.scan_csv(plain, infer_schema=False, glob=False)
    count = _count_lines(plain, scan.collect_schema().names(), where)
    table = _chosen(scan, names, prefix)
    if table.width and table.height != count:
        raise BudgetError(
            f"{where}: quotes that do not belong together", "check the export; nothing was stored"
        )
    return table


def _chosen(scan: pl.LazyFrame, names: Sequence[str], prefix: str) -> pl.DataFrame:
    present = scan.collect_schema().names()
    return scan.select(name for name in present if name in names or name.startswith(prefix)).collect()


def _unpack(path: Path, where: str, limits: FileLimits) -> Path:
    """The file unpacked beside itself; stops at the limit, whatever the packed file claims."""
    plain = path.with_suffix("")
    size = 0
    with gzip.open(path) as source, plain.open("wb") as target:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > limits.unpacked:
                raise BudgetError(
                    f"{where}: expands to more than {limits.unpacked} bytes",
                    "check the export; nothing was stored",
                )
            target.write(chunk)
    return plain


def _check_lines(path: Path, where: str) -> None:
    """No field may be so long that it has to be held in memory for its own sake."""
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            if b"\n" not in chunk and len(chunk) == _CHUNK:
                raise BudgetError(
                    f"{where}: has a line of more than {_CHUNK} bytes", "check the export; nothing was stored"
                )


def _count_lines(path: Path, names: Sequence[str], where: str) -> int:
    """Count lines as Python reads them; each must be whole.

    polars fills up a line that is cut off, renames a column that is there twice, and may take lines together.

    Args:
        names: of the columns, as polars reads them.
    """
    with path.open(newline="", encoding="utf-8-sig") as source:
        lines = csv.reader(source, strict=True)
        header, count = next(lines, []), 0
        if header != names:
            twice = sorted({name for name in header if header.count(name) > 1})
            what = f"has the column {twice[0][:100]!r} twice" if twice else "its first line names no columns"
            raise BudgetError(f"{where}: {what}", "check the export; nothing was stored")
        for line in lines:
            count += 1
            if len(line) != len(header):
                raise BudgetError(
                    f"{where}: line {lines.line_num} has {len(line)} fields, expected {len(header)}",
                    "the file is cut off or damaged: have it delivered again; nothing was stored",
                )
    return count
