"""The edge: reads a cluster's configuration folder and its accounts, from files or from slurmdbd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hpctools.conf.existing.dump import Dump, parse_dump
from hpctools.conf.existing.site_file import Existing
from hpctools.conf.existing.tree import parse_qos, tree_of, without_root
from hpctools.conf.plan.meaning import read_meaning
from hpctools.conf.plan.read import read_folder
from hpctools.errors import HpctoolsError
from hpctools.slurm.versions import Release

Ask = Callable[[Sequence[str]], str]
"""Runs a program with its arguments and returns what it prints."""

QOS_COMMAND = ("sacctmgr", "--parsable2", "show", "qos")


def read_existing(
    folder: Path, *, dump: Path | None, qos: Path | None, ask: Ask, release: Release | None
) -> Existing:
    """Read what a cluster has.

    Args:
        folder: where slurm.conf is.
        dump: the file that `sacctmgr dump` wrote; slurmdbd is asked when None.
        qos: what `sacctmgr --parsable2 show qos` printed; slurmdbd is asked when None.
        ask: runs sacctmgr.
        release: Slurm's.

    Raises:
        HpctoolsError: a file is missing or cannot be understood; and whatever `ask` raises.
    """
    files = read_folder(folder, "").files
    if "slurm.conf" not in files:
        raise HpctoolsError(f"there is no slurm.conf in {folder}", "name its folder with --folder")
    cluster = read_meaning(files).settings.get("clustername")
    if cluster is None:
        raise HpctoolsError(f"{folder}/slurm.conf names no cluster", "it needs a ClusterName")
    dumped = parse_dump(_text(dump) if dump else _dump(cluster.value, ask))
    if dumped.cluster.lower() != cluster.value.lower():
        raise HpctoolsError(
            f"the dump is of cluster {dumped.cluster!r}, slurm.conf of {cluster.value!r}",
            f"make it with `sacctmgr dump {cluster.value} file=FILE`",
        )
    tree = without_root(tree_of(dumped, parse_qos(_text(qos) if qos else ask(QOS_COMMAND))))
    return Existing(files, tree, _descriptions(dumped), release)


def _dump(cluster: str, ask: Ask) -> str:
    """sacctmgr writes the file itself, and repeats it on the screen with its own name before each line."""
    return ask(("sacctmgr", "dump", cluster, "file=/dev/stdout"))


def _descriptions(dumped: Dump) -> dict[str, str]:
    return {row.name: row.settings.get("Description", row.name) for row in dumped.accounts}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HpctoolsError(f"{path} cannot be read: {error.strerror}", "check its name and mode") from None
