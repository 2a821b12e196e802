"""What a boot says about a configuration: pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from hpctools.conf.preflight.expected import Expected, fold
from hpctools.conf.preflight.model import Problem
from hpctools.conf.preflight.node_gres import DEVICES
from hpctools.conf.preflight.statements import OUTSIDE
from hpctools.conf.preflight.wording import lost_job, plain, problem, unknown_node
from hpctools.slurm.throwaway.places import CONF, HOPELESS, PRIVATE
from hpctools.slurm.throwaway.seen import Booted, SeenNode

_SLURMD = re.compile(r"^slurmd(-[^\s:]+)?: ")  # as what it writes begins, with -N its node's name in it
_OF_GRES = re.compile(r"^fatal: .*(gres|shar(ed|ing)|file)", re.IGNORECASE)
_OF_TRY = re.compile(rf"{PRIVATE}/slurmds/\d+")


def judge(expected: Expected, seen: Booted, folder: str, *, past: bool) -> tuple[Problem, ...]:
    """Compare what slurmctld said and shows with what the configuration says.

    Args:
        expected: what it should show.
        seen: what was seen.
        folder: the configuration folder, which slurmctld's words are made to name.
        past: whether it was given the state of a live slurmctld.
    """
    found = [*_complaints(seen, folder, past=past), *_ending(seen, folder)]
    if seen.up:
        found += [*_nodes(expected, seen, past=past), *_partitions(expected, seen)]
    return tuple(found or _slurmds(seen, folder))  # what slurmctld told of comes back in slurmds' words


def lost_jobs(seen: Booted) -> tuple[int, ...]:
    """The live jobs that did not survive it; it complains of those, too, that were over before."""
    told = {job for job in map(lost_job, seen.lines) if job is not None}
    return tuple(sorted((told - set(seen.past_jobs)) | set(seen.ended_jobs)))


def _complaints(seen: Booted, folder: str, *, past: bool) -> Iterator[Problem]:
    """What it said, each once; of nodes that it does not know all at once, since there may be thousands."""
    lines = list(dict.fromkeys(_original(line, folder) for line in seen.lines))
    unknown = {name: line for line in lines if (name := unknown_node(line))}
    if unknown and not past:
        names = _folded(set(unknown))
        yield Problem(
            next(iter(unknown.values())),
            f"something names nodes that no NodeName line names: {names}",
            "add the nodes or take their names out",
        )
    told = (problem(line, past=past) for line in lines if line not in unknown.values())
    yield from (each for each in told if each)


def unasked(seen: Booted) -> tuple[str, ...]:
    """Say which slurmds could not be asked, and why; that is no fault of the configuration."""
    ends = {names: _last_word(lines) for names, lines in seen.slurmds.items()}
    return tuple(
        f"gres.conf as the slurmd of {names} reads it: it could not be asked ({said})"
        for names, said in ends.items()
        if not _OF_GRES.search(said)
    )


def _slurmds(seen: Booted, folder: str) -> Iterator[Problem]:
    """Of each slurmd that ended over its generic resources the line that it ended with."""
    for names, lines in seen.slurmds.items():
        said = _original(_last_word(lines), folder)
        if _OF_GRES.search(said):
            told = problem(said, past=False)
            known = told is not None and bool(told.remedy)
            meaning = told.meaning if told and known else "it does not start with its gres.conf"
            yield Problem(said, f"slurmd of {names}: {meaning}", told.remedy if told and known else "")


def _last_word(lines: Sequence[str]) -> str:
    said = [_SLURMD.sub("", plain(line)) for line in lines] or ["it said nothing"]
    return next((line for line in said if line.startswith("fatal: ")), said[-1])


def _original(line: str, folder: str) -> str:
    """A line as the daemon would say it of the configuration where it is meant to lie."""
    line = _OF_TRY.sub(CONF, line).replace(DEVICES, "")
    return plain(line).replace(f"{CONF}/{OUTSIDE}/", "/").replace(CONF, folder)


def _ending(seen: Booted, folder: str) -> Iterator[Problem]:
    if seen.up or any(HOPELESS in line for line in seen.lines):
        return
    last = _original(seen.lines[-1], folder) if seen.lines else ""
    if seen.code is None:
        yield Problem(last, "slurmctld did not answer in time", "try again when the machine is less busy")
    elif seen.code < 0 or seen.code > 128:
        number = -seen.code if seen.code < 0 else seen.code - 128
        yield Problem(last, f"slurmctld crashed with signal {number}", "the line is the last that it wrote")
    elif not any(plain(line).startswith("fatal: ") for line in seen.lines):
        yield Problem(last, f"slurmctld ended by itself with exit code {seen.code}", "")


def _nodes(expected: Expected, seen: Booted, *, past: bool) -> Iterator[Problem]:
    wanted, there = set(expected.nodes), set(seen.nodes)
    if wanted - there:
        yield Problem("", f"slurmctld does not have these nodes: {_folded(wanted - there)}", "")
    if there - wanted:
        yield Problem("", f"slurmctld has nodes that no NodeName line names: {_folded(there - wanted)}", "")
    broken = {name for name, node in seen.nodes.items() if "INVAL" in node.state}
    if broken:
        yield Problem("", f"slurmctld takes these nodes' lines for invalid: {_folded(broken)}", "")
    if past:
        return  # from 24.11 on the state shows the GRES of before until the node's slurmd registers
    for name in sorted(wanted & there):
        difference = _gres(name, expected.nodes[name], seen.nodes[name])
        if difference:
            yield difference
            return  # the others are alike; one is enough to see what is meant


def _gres(name: str, wanted: str, node: SeenNode) -> Problem | None:
    if _same_counts(wanted, node.gres):
        return None
    return Problem(
        "",
        f"node {name} has Gres={wanted or '(none)'} in its line, and slurmctld has {node.gres or 'none'}",
        "see that GresTypes and gres.conf name the same kinds",
    )


@cache
def _same_counts(wanted: str, seen: str) -> bool:
    """Thousands of nodes have a few kinds of lines."""
    return gres_counts(wanted) == gres_counts(seen)


def gres_counts(text: str) -> dict[str, int]:
    """Count generic resources by kind: `gpu:a100:8(S:0-1),shard:16` gives gpu 8 and shard 16.

    Types are left aside: releases differ in whether they show that of shards.
    """
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = [word for word in part.split(":") if word and word != "no_consume"]
        if words:
            last = words[-1] if len(words) > 1 else "1"
            counts[words[0]] = counts.get(words[0], 0) + _number(last)
    return {kind: count for kind, count in counts.items() if count}


_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}


def _number(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmgtp]?)", text.lower())
    return int(found[1]) * _FACTORS[found[2]] if found else 1


def _partitions(expected: Expected, seen: Booted) -> Iterator[Problem]:
    for name, wanted in expected.partitions.items():
        if name not in seen.partitions:
            yield Problem("", f"slurmctld does not have partition {name}", "")
        elif wanted is not None and not _alike(wanted, seen.partitions[name]):
            there = seen.partitions[name] or "none"
            yield Problem(
                "", f"partition {name} should have the nodes {wanted or 'none'} and has {there}", ""
            )


def _alike(wanted: str, there: str) -> bool:
    """Whether two host lists name the same nodes; reading them costs milliseconds, so first as texts."""
    return wanted == there or fold(wanted) in (None, fold(there))


def _folded(names: set[str]) -> str:
    return fold(",".join(sorted(names))) or ""
