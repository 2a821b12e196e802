"""Changes of the files beside slurm.conf: pure.

No daemon tells what it has read of them, so that what there is are the files alone; but a slurmd that started
before a file was last written cannot know it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from hpctools.conf.bundle import Bundle
from hpctools.conf.plan import effects, values
from hpctools.conf.plan.defaults import file_defaults
from hpctools.conf.plan.live import OnDisk
from hpctools.conf.plan.meaning import expand
from hpctools.conf.plan.model import Change, FileChange, Need
from hpctools.conf.plan.needs import file_needs, read_by_slurmd
from hpctools.conf.plan.secrets import masked
from hpctools.conf.plan.sides import Sides, folded
from hpctools.conf.plan.slurmfile import Line, parse_lines
from hpctools.conf.text import HEADER

_AREAS = {
    "gres.conf": "gres",
    "cgroup.conf": "cgroup",
    "slurmdbd.conf": "slurmdbd",
    "topology.conf": "topology",
    "topology.yaml": "topology",
}
_SLURM_CONF = "slurm.conf"
# Every line of its own, in any order, with a host list under one of these keys.
_OF_LINES = {"gres.conf", "topology.conf"}
_FIRST = ("name", "type", "count", "file")
_HOST_KEYS = ("nodename", "nodes", "switches")


def file_texts(wanted: Bundle, disk: OnDisk, changed: Mapping[str, bool]) -> Iterator[FileChange]:
    """Yield the files whose texts differ, secrets masked.

    Args:
        changed: whether a file's meaning differs, by path; a missing one's does not.
    """
    for file in wanted.files:
        there = disk.files.get(file.path)
        if there != file.text and file.path not in disk.unreadable:
            before, after = masked(there, file.text)
            yield FileChange(file.path, before, after, there is None or changed.get(file.path, False))
    names = {file.path for file in wanted.files}
    for path, text in disk.files.items():
        if path not in names and _ours(path, text):
            yield FileChange(path, masked(text, None)[0], None)


def _ours(path: str, text: str) -> bool:
    return path in _AREAS and text.startswith(HEADER[:20])


def file_changes(wanted: Bundle, disk: OnDisk, sides: Sides) -> Iterator[tuple[str, Change]]:
    """Yield changes of files other than slurm.conf, with the file's path."""
    for file in wanted.files:
        if file.path == _SLURM_CONF or file.path in disk.unreadable:
            continue
        there = disk.files.get(file.path)
        found = list(_compare(file.path, there, file.text, sides))
        yield from ((file.path, change) for change in found)
        if there is not None and not found:
            yield from ((file.path, change) for change in _stale(file.path, disk, sides))
    names = {file.path for file in wanted.files}
    for path, text in disk.files.items():
        if path not in names and _ours(path, text):
            yield path, _whole(path, "there", None, sides)


def _whole(path: str, before: str | None, after: str | None, sides: Sides) -> Change:
    need = file_needs(path, sides.release)
    area = _AREAS.get(path, "file")
    return Change(area, path, "", before, after, need, "", _slurmds(need, sides))


def _slurmds(need: Need, sides: Sides) -> tuple[str, ...]:
    return sides.slurmds() if need in (Need.RESTART_DAEMONS, Need.RESTART_SLURMDS) else ()


def _compare(path: str, there: str | None, wanted: str, sides: Sides) -> Iterator[Change]:
    if there == wanted:
        return
    if there is None:
        yield _whole(path, None, "new", sides)
    elif path in _OF_LINES:
        yield from _line_changes(path, _lines(there, path), _lines(wanted, path), sides)
    elif path.endswith(".conf"):
        yield from _key_changes(path, _lines(there, path), _lines(wanted, path), sides)
    elif _without_comments(there) != _without_comments(wanted):
        yield _whole(path, "another text", "a new text", sides)


def _lines(text: str, path: str) -> Sequence[Line]:
    return list(parse_lines({path: text}, path))


def _without_comments(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _key_changes(path: str, there: Sequence[Line], wanted: Sequence[Line], sides: Sides) -> Iterator[Change]:
    """Files of settings: one change for each that differs."""
    old, new = ({p.key.lower(): p for line in lines for p in line} for lines in (there, wanted))
    need = file_needs(path, sides.release)
    nodes = _slurmds(need, sides)
    usual = file_defaults(path)
    for key in dict.fromkeys((*new, *old)):
        before, after = old.get(key), new.get(key)
        ours, theirs = (each.value if each else usual.get(key, "") for each in (after, before))
        if values.plain(ours) == values.plain(theirs):
            continue
        spelled = (after or before).key  # type: ignore[union-attr]
        old_text, new_text = masked(*(f"{key}={each.value}" if each else None for each in (before, after)))
        area = _AREAS.get(path, "file")
        yield Change(area, path, spelled, _told_value(old_text), _told_value(new_text), need, "", nodes)


def _told_value(text: str | None) -> str | None:
    return None if text is None else text.partition("=")[2]


Rest = tuple[tuple[str, str], ...]


def _line_changes(path: str, there: Sequence[Line], wanted: Sequence[Line], sides: Sides) -> Iterator[Change]:
    """Files of lines about nodes: nodes whose lines change alike are one change."""
    old, new = _by_node(there), _by_node(wanted)
    groups: dict[tuple[frozenset[Rest], frozenset[Rest]], list[str]] = {}
    for name in dict.fromkeys((*new, *old)):
        pair = (old.get(name, frozenset()), new.get(name, frozenset()))
        if pair[0] != pair[1]:
            groups.setdefault(pair, []).append(name)
    need = file_needs(path, sides.release)
    there_now = set(sides.slurmds())
    for (before, after), names in groups.items():
        subject = path if names == [""] else folded(names)
        nodes = sides.slurmds() if names == [""] else tuple(name for name in names if name in there_now)
        told = "read again by the slurmds there" if need is not Need.RECONFIGURE else ""
        touched = nodes if need in (Need.RESTART_DAEMONS, Need.RESTART_SLURMDS) else ()
        key = path if before and after else ""
        effect = told if touched else ""
        yield Change(_AREAS[path], subject, key, _told(before), _told(after), need, effect, touched)


def _by_node(lines: Sequence[Line]) -> dict[str, frozenset[Rest]]:
    """What is said of each node (`""`: of all), without the host list."""
    found: dict[str, tuple[Rest, ...]] = {}
    for line in lines:
        raw = {pair.key.lower(): pair.value for pair in line}
        host_key = next((key for key in _HOST_KEYS if key in raw), None)
        rest = tuple((key, _canonical(key, value)) for key, value in _in_order(raw) if key != host_key)
        for name in expand(raw[host_key]) if host_key else ("",):
            found[name] = (*found.get(name, ()), rest)
    known: dict[tuple[Rest, ...], frozenset[Rest]] = {}
    return {name: known.setdefault(rests, frozenset(rests)) for name, rests in found.items()}


def _in_order(raw: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(raw.items(), key=lambda pair: ([*_FIRST, pair[0]].index(pair[0]), pair[0]))


def _canonical(key: str, value: str) -> str:
    return values.word(value) if key == "file" else values.plain(value)


def _told(rests: frozenset[Rest]) -> str | None:
    lines = (" ".join(f"{key}={value}" for key, value in rest) for rest in sorted(rests))
    return "; ".join(lines) or None


def _stale(path: str, disk: OnDisk, sides: Sides) -> Iterator[Change]:
    """slurmds that started before the file was written; those of powered-down nodes will read it anyway."""
    if not read_by_slurmd(path) or path not in disk.written:
        return
    written = int(disk.written[path])
    late = [name for name in sides.slurmds() if _started(sides, name) < written]
    if late:
        need = file_needs(path, sides.release)
        need = Need.RESTART_SLURMDS if need is Need.RESTART_DAEMONS else need
        told = f"{path} was written after {effects.count(len(late), 'slurmd')} started"
        yield Change(
            _AREAS.get(path, "file"),
            folded(late),
            path,
            "an older text",
            "the file's",
            need,
            told,
            tuple(late),
        )


def _started(sides: Sides, name: str) -> float:
    """Unix seconds; infinity for a slurmd that is not known to run."""
    status = sides.status.get(name)
    try:
        return datetime.fromisoformat(status.started).timestamp() if status else float("inf")
    except ValueError:
        return float("inf")
