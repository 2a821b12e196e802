"""Our part of slurm.conf: one file beside it, one Include line in it, and Gres= on the agent's node lines.

The agent's keys are never written. What it writes anew (its file, its node lines) loses ours: this step sees
that and puts them back. A path-less name is what a configless slurmctld ships to the workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from provision import slurmctld
from provision.failures import Failure
from provision.files import is_so, read_json, read_text, write_whole
from provision.members import groups_by_name, groups_of_line, node_line, nodes_by_group
from provision.slurm_conf import (
    INCLUDE,
    agent_accounts,
    folder,
    keep_backup,
    read_conf,
    values,
    with_include,
    without_include,
)
from provision.step import Context

_GROUP = re.compile(r"@group:([^@]*)@")
_NODES = re.compile(r"\bNodes=(\S*)")
_GRES = re.compile(r"(\s)Gres\s*=\s*\S+", re.IGNORECASE)
_HEADER = "# Made by hpctools"
# Where slurmdbd is, which the agent says where it keeps the accounts itself.
_SLURMDBD = re.compile(r"(?m)^AccountingStorage(Type|Host|Port)=.*\n")


def include_text(template: str, nodes: Mapping[str, list[str]], controller: str) -> str:
    """Fill in what only the cluster knows: the nodes of each group, and where slurmdbd is.

    A partition whose groups have no nodes yet is left out: Slurm would refuse its name for it.
    """
    lines = []
    for line in template.replace("@controller@", controller).splitlines():
        filled = _GROUP.sub(lambda match: ",".join(nodes.get(match[1], ())), line)
        named = _NODES.search(filled)
        if named is None:
            lines.append(filled)
        elif names := [name for name in named[1].split(",") if name]:
            lines.append(filled.replace(named[0], f"Nodes={','.join(names)}", 1))
        elif line.startswith("PartitionName="):
            lines.append(f"# {line.split()[0]} has no nodes yet")
    return "\n".join(lines) + "\n"


def with_gres(text: str, gres: Mapping[str, str], known: Mapping[str, str]) -> str:
    """Return slurm.conf with the Gres of each group on its node lines; other lines as they are.

    Args:
        text: slurm.conf.
        gres: by group; groups that are missing are the agent's own business.
        known: the group of each node name and address.

    Raises:
        Failure: one line is about nodes of groups that differ.
    """
    return "".join(_gres_line(line, gres, known) for line in text.splitlines(keepends=True))


def _gres_line(line: str, gres: Mapping[str, str], known: Mapping[str, str]) -> str:
    about = node_line(line)
    groups = {group for _, group in groups_of_line(about, known)} if about else set()
    wanted = {gres.get(group, "") for group in groups}
    if not any(wanted):
        return line
    if len(wanted) > 1:
        names = ", ".join(sorted(groups))
        raise Failure(f"one line of slurm.conf is about {names}, whose GPUs differ: {line.strip()}")
    (value,) = wanted
    body = line.rstrip("\r\n")
    ending = line[len(body) :]
    return f"{_GRES.sub('', body).rstrip()} Gres={value}{ending}"


def wanted_files(context: Context) -> dict[Path, str]:
    """What each file should say now: the Include, slurm.conf, and files beside it that nobody else has made.

    Raises:
        Failure: slurm.conf or HyperPod's file cannot be read, or a partition's name is the agent's.
    """
    current = read_conf(context)
    config = read_json(context.resource_config, "HyperPod's resource_config.json")
    known = groups_by_name(_config(config))
    template = read_text(context.settings.folder / "slurm" / INCLUDE, "the site's part of slurm.conf")
    controller = next(values(current, "SlurmctldHost"), "localhost").partition("(")[0]
    ours = include_text(template, nodes_by_group(current, known), controller)
    if agent_accounts(current):
        ours = _SLURMDBD.sub("", ours)
    _refuse_same_partitions(current, ours)
    gres = known_gres(
        context.settings.section("slurm").get("gres") or {}, _text(folder(context) / "gres.conf")
    )
    changed = with_include(with_gres(current, gres, known))
    place = folder(context)
    return {**_beside(context, place), place / INCLUDE: ours, place / "slurm.conf": changed}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def known_gres(wanted: Mapping[str, str], gres_conf: str) -> dict[str, str]:
    """Return the Gres= of each group as far as the agent's gres.conf bears it out.

    A node whose Gres= names a type that its gres.conf does not has none of its GPUs: slurmctld sets it INVAL.
    Shards without a record of theirs end slurmctld.
    """
    typed = _has_types(gres_conf)
    kinds = {"gpu", *re.findall(r"(?im)^[^#\n]*\bName\s*=\s*(\w+)", gres_conf)}
    found = {}
    for group, value in wanted.items():
        words = [word for word in value.split(",") if word.split(":")[0] in kinds]
        if words:
            found[group] = ",".join(words if typed else _summed(words))
    return found


def _has_types(gres_conf: str) -> bool:
    """Whether it tells types of GPU, or lets slurmd find them out."""
    lines = [line for line in gres_conf.splitlines() if not line.lstrip().startswith("#")]
    gpus = [line for line in lines if re.search(r"\bName\s*=\s*gpu\b", line, re.IGNORECASE)]
    return all(re.search(r"\b(Type|AutoDetect)\s*=", line, re.IGNORECASE) for line in gpus)


def _summed(words: Iterable[str]) -> Iterator[str]:
    """`gpu:a100:8` as `gpu:8`; several types of one kind are added up."""
    counts: dict[str, int] = {}
    for word in words:
        kind, *_, count = word.partition("(")[0].split(":")
        counts[kind] = counts.get(kind, 0) + int(count)
    return (f"{kind}:{count}" for kind, count in counts.items())


def _config(found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise Failure("HyperPod's resource_config.json is damaged: no JSON object")
    return found


def _beside(context: Context, place: Path) -> dict[Path, str]:
    """cgroup.conf and the like: only where there is none, or one of ours."""
    found = {}
    for name in context.settings.section("slurm").get("files") or ():
        path = place / name
        if not path.exists() or path.read_text(encoding="utf-8", errors="replace").startswith(_HEADER):
            found[path] = read_text(context.settings.folder / "slurm" / name, "the site's file")
    return found


def _refuse_same_partitions(theirs: str, ours: str) -> None:
    """Two partitions of one name end slurmctld."""
    both = set(values(without_include(theirs), "PartitionName")) & set(values(ours, "PartitionName"))
    if both - {"DEFAULT"}:
        raise Failure(
            f"HyperPod's agent has a partition {', '.join(sorted(both))} already: name the site's otherwise "
            "(departments[].partition.name), or the group's (hyperpod.node_groups.GROUP.partition)",
            hopeless=True,
        )


def is_done(context: Context) -> bool:
    """Whether all of it is in place."""
    if not (context.settings.folder / "slurm" / INCLUDE).exists():
        return True
    try:
        return all(is_so(path, text) for path, text in wanted_files(context).items())
    except Failure:
        return False


def do(context: Context) -> None:
    """Put it in place; slurm.conf last, so that it never names a file that is not there.

    Raises:
        Failure: see `wanted_files`, or a file cannot be written.
    """
    keep_backup(without_include(read_conf(context)))
    slurmctld.forget()
    for path, text in wanted_files(context).items():
        if write_whole(path, text):
            print(f"wrote {path}")
