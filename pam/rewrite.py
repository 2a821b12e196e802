"""Our rules into a stack and out of it again; everything else stays as it is. Pure.

Ours stand between two marks, first in the service's own file. Rules of others that must read differently (a
jump over rules of ours, an include of a file that got some) keep their old text in a comment above them, so
that taking ours out gives back every byte. A file that others include too is not touched: the service gets a
copy under another name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pam.stack import INCLUDE, Entry, Files, Piece, Rule, StackError, distance, flatten, landing, load, parse

BEGIN = "# hpctools: begin"
END = "# hpctools: end"
WAS = "# hpctools: was "
PREFIX = "hpctools-"
LONGEST = 1000  # libpam reads 1,023 bytes at a time (BUF_SIZE in pam_private.h)
# They move a session out of the job's cgroup into one of their own.
ESCAPES = frozenset({"pam_systemd.so", "pam_elogind.so", "pam_cgfs.so", "pam_cgroup.so"})


@dataclass(frozen=True)
class Additions:
    """What is to be added to a service.

    Attributes:
        about: one line for those who read the file.
        first: rules before all others.
        guard: rules before each module of ESCAPES in sessions; the last jumps over one rule, the others to
        it.
    """

    about: str
    first: tuple[str, ...]
    guard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewritten:
    """A service with our rules.

    Attributes:
        text: the service's file.
        copies: files that it includes instead of others', by name.
    """

    text: str
    copies: Mapping[str, str] = field(default_factory=dict)


def strip(text: str, name: str) -> str:
    """The file without what is ours.

    Raises:
        StackError: the marks do not match: somebody edited between them.
    """
    kept: list[str] = []
    inside = False
    original: str | None = None
    for piece in parse(text, name):
        line = piece.text.strip()
        if line.startswith((BEGIN, END)):
            if inside == line.startswith(BEGIN):
                raise StackError(f"{name}:{piece.line}: a mark of hpctools without its other one")
            inside = not inside
        elif line.startswith(WAS):
            original = _original(line, f"{name}:{piece.line}")
        elif not inside:
            if original is not None and piece.rule is None:
                raise StackError(f"{name}:{piece.line}: stands between a rule and what hpctools noted of it")
            kept.append(piece.text if original is None else original)
            original = None
    if inside or original is not None:
        raise StackError(f"{name}: a mark of hpctools without its other one")
    return "".join(kept)


def _original(line: str, where: str) -> str:
    try:
        return str(json.loads(line.removeprefix(WAS)))
    except ValueError:
        raise StackError(f"{where}: a mark of hpctools was edited") from None


def is_ours(text: str) -> bool:
    """Whether rules of ours are in a file."""
    return any(line.startswith((BEGIN, WAS)) for line in text.split("\n"))


def rewrite(service: str, read: Callable[[str], str], additions: Additions) -> Rewritten:
    """Put our rules into a service; those that are there already are replaced.

    Services include one another (su-l includes su), so that what is ours elsewhere does not count either.

    Args:
        service: the service's file.
        read: gives a file's text by name; raises OSError.
        additions: our rules.

    Raises:
        StackError: the stack cannot be parsed, or changed without changing what others mean.
    """
    files = load(service, lambda name: strip(read(name), name))
    if not any(piece.rule for piece in files[service]):
        raise StackError(f"{service} has no rules")
    changed = _guarded(files, service, additions.guard) if additions.guard else {}
    return _Writer(files, service, additions, changed).whole()


def _guarded(files: Files, service: str, guard: tuple[str, ...]) -> dict[tuple[str, int], Rule]:
    """Rules whose jumps must count differently once guards stand before ESCAPES."""
    entries = flatten(files, service, "session")
    old = tuple(entry.level for entry in entries)
    starts: list[int] = []
    new: list[int] = []
    for entry in entries:
        starts.append(len(new))
        new += [entry.level] * (1 + len(guard) * _is_guarded(entry))
    starts.append(len(new))
    changed: dict[tuple[str, int], Rule] = {}
    for at, entry in enumerate(entries):
        own, where = starts[at + 1] - 1, f"{entry.file}:{files[entry.file][entry.index].line}"
        targets = {count: starts[_land(old, at, count, where)] for count in entry.rule.jumps if count}
        rule = entry.rule.with_jumps({n: distance(tuple(new), own, target) for n, target in targets.items()})
        if changed.setdefault((entry.file, entry.index), rule) != rule:
            raise StackError(f"{where}: is included twice, and its jumps would differ")
    return {place: rule for place, rule in changed.items() if files[place[0]][place[1]].rule != rule}


def _land(levels: tuple[int, ...], at: int, count: int, where: str) -> int:
    try:
        return landing(levels, at, count)
    except StackError as error:
        raise StackError(f"{where}: {error}: PAM refuses logins for it") from None


def _is_guarded(entry: Entry) -> bool:
    return entry.rule.module in ESCAPES


@dataclass
class _Writer:
    """Writes the service's file and the copies that it needs."""

    files: Files
    service: str
    additions: Additions
    changed: Mapping[tuple[str, int], Rule]
    copies: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def whole(self) -> Rewritten:
        body = self._body(self.service)
        first = next(i for i, piece in enumerate(self.files[self.service]) if piece.rule)
        text = "".join([*body[:first], self._block(self.additions.first), *body[first:]])
        return Rewritten(text, self.copies)

    def _body(self, name: str) -> list[str]:
        return [self._piece(name, index, piece) for index, piece in enumerate(self.files[name])]

    def _piece(self, name: str, index: int, piece: Piece) -> str:
        if piece.rule is None:
            return piece.text
        rule = self.changed.get((name, index), piece.rule)
        if rule.includes and rule.type in ("session", INCLUDE):
            rule = replace(rule, target=self._copy(rule.target))
        guarded = self.additions.guard and rule.type == "session" and rule.module in ESCAPES
        block = self._block(self.additions.guard) if guarded else ""
        return block + (piece.text if rule == piece.rule else _instead(piece.text, rule))

    def _copy(self, name: str) -> str:
        """The name to include instead of a file: its own while nothing in it differs."""
        if name not in self.names:
            text = "".join(self._body(name))
            base = name.rpartition("/")[2]
            digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
            same = text == "".join(piece.text for piece in self.files[name])
            self.names[name] = name if same else f"{PREFIX}{self.service}-{base}-{digest}"
            if not same:
                self.copies[self.names[name]] = text
        return self.names[name]

    def _block(self, rules: Iterable[str]) -> str:
        return "".join(f"{_short(line)}\n" for line in (f"{BEGIN} ({self.additions.about})", *rules, END))


def _instead(text: str, rule: Rule) -> str:
    return f"{_short(WAS + json.dumps(text))}\n{_short(str(rule))}" + "\n" * text.endswith("\n")


def _short(line: str) -> str:
    """A line that libpam reads in one go; of a longer one (a comment too) it takes the tail for a rule."""
    if len(line) > LONGEST:
        raise StackError(f"this rule would become too long for PAM: {line[:80]}...")
    return line
