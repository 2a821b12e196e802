"""PAM stacks as data: parsed as libpam parses them, and written again byte for byte.

How libpam reads a file (pam_handlers.c, pam_misc.c of Linux-PAM 1.3 to 1.7): a line that ends in a backslash
goes on in the next one; blank lines and lines of comment in between do not count; `#` ends a line wherever it
stands; words are parted by blanks, and `[...]` is one word in which `\\]` is a bracket. `@include FILE`
(Debian) brings in all lines of a file, `TYPE include FILE` those of one type; both count as if the lines
stood there. `TYPE substack FILE` counts as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

TYPES = ("account", "auth", "password", "session")
INCLUDE = "@include"
BLANKS = " \t\n"
DEEPEST = 16  # PAM_SUBSTACK_MAX_LEVEL
_JUMP = re.compile(r"(=[ \t]*)(\d+)")
_WORD = re.compile(r"\[(?:\\.|[^\]\\])*\]|[^ \t\n]+", re.DOTALL)


class StackError(Exception):
    """A stack that libpam itself would not take as it was meant, or that cannot be changed safely."""


@dataclass(frozen=True)
class Rule:
    """One rule of a stack.

    Attributes:
        type: one of TYPES, or INCLUDE.
        control: the second word; empty for INCLUDE.
        target: the module; the file of an include.
        rest: the module's arguments as they stand.
        dash: whether the type has a dash before it (a missing module is not logged).
    """

    type: str
    control: str
    target: str
    rest: str = ""
    dash: bool = False

    @property
    def includes(self) -> bool:
        """Whether it brings in another file."""
        return self.type == INCLUDE or self.control.lower() in ("include", "substack")

    @property
    def module(self) -> str:
        """The module's file name without its folder."""
        return self.target.rpartition("/")[2]

    @property
    def jumps(self) -> tuple[int, ...]:
        """How many rules its control may jump over."""
        if not self.control.startswith("["):
            return ()
        return tuple(int(number) for _, number in _JUMP.findall(self.control))

    def with_jumps(self, changed: Mapping[int, int]) -> Rule:
        """The same rule with other jump counts."""
        control = _JUMP.sub(lambda m: f"{m[1]}{changed.get(int(m[2]), int(m[2]))}", self.control)
        return replace(self, control=control)

    def __str__(self) -> str:
        if self.type == INCLUDE:
            return f"{INCLUDE} {self.target}"
        words = (f"{'-' * self.dash}{self.type}", self.control, self.target, self.rest)
        return "\t".join(word for word in words if word)


@dataclass(frozen=True)
class Piece:
    """Part of a file: a rule with all its physical lines, or lines without one.

    Attributes:
        text: exactly as it stands, line ends included.
        line: the number of its first line, from 1.
        rule: what it says; None for comments and blank lines.
    """

    text: str
    line: int
    rule: Rule | None = None


def parse(text: str, name: str) -> tuple[Piece, ...]:
    """Parse a file of a stack; the pieces' texts together are the file.

    Args:
        text: the file.
        name: what it is called, for messages.

    Raises:
        StackError: a rule that libpam takes for a failure (unknown type, no module), or a last line that goes
        on.
    """
    pieces: list[Piece] = []
    held, logical, first = "", "", 0
    for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), 1):
        content = line.lstrip(BLANKS)
        if not held:
            first = number
        held += line
        if not content or content.startswith("#"):
            if not logical:
                pieces, held = [*pieces, Piece(held, first)], ""
            continue
        body, comment, _ = content.partition("#")
        body = body.rstrip(BLANKS)
        goes_on = not comment and body.endswith("\\")
        logical += f"{body[:-1]} " if goes_on else body
        if not goes_on:
            pieces.append(Piece(held, first, _rule(logical, f"{name}:{first}")))
            held = logical = ""
    if held:
        raise StackError(
            f"{name}:{first}: the last line ends in a backslash, so that PAM reads nothing of the file"
        )
    return tuple(pieces)


def _rule(logical: str, where: str) -> Rule:
    words = [(m.group(), m.end()) for m in _WORD.finditer(logical)]
    first = words[0][0] if words else ""
    if first.lower() == INCLUDE and len(words) > 1:
        return Rule(INCLUDE, "", words[1][0])
    kind = first.removeprefix("-").lower()
    if kind not in TYPES:
        raise StackError(
            f"{where}: {first!r} is no type of rule ({', '.join(TYPES)}): PAM refuses logins for it"
        )
    if len(words) < 3:
        raise StackError(
            f"{where}: a rule of type {kind} needs a control and a module: PAM refuses logins for it"
        )
    if any(word.startswith("[") and not word.endswith("]") for word, _ in words[1:3]):
        raise StackError(f"{where}: a bracket is not closed: PAM refuses logins for it")
    rest = logical[words[2][1] :].strip(BLANKS)
    return Rule(kind, words[1][0], words[2][0], rest, first.startswith("-"))


@dataclass(frozen=True)
class Entry:
    """A rule at its place in the whole stack of one type.

    Attributes:
        file: the file that it stands in.
        index: its piece there.
        level: how many substacks it is in.
    """

    file: str
    index: int
    level: int
    rule: Rule


Files = Mapping[str, tuple[Piece, ...]]


def load(service: str, read: Callable[[str], str]) -> Files:
    """Read and parse a service's file and all that it includes.

    Args:
        service: the file's name.
        read: gives a file's text; raises OSError.

    Raises:
        StackError: a file is missing or cannot be parsed.
    """
    found: dict[str, tuple[Piece, ...]] = {}
    waiting = [(service, "")]
    while waiting:
        name, includer = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = parse(read(name), name)
        except OSError as error:
            raise StackError(f"{includer}{name} cannot be read: {error.strerror}") from None
        waiting += [
            (piece.rule.target, f"{name}:{piece.line}: ")
            for piece in found[name]
            if piece.rule and piece.rule.includes
        ]
    return found


def flatten(files: Files, service: str, kind: str) -> tuple[Entry, ...]:
    """All rules of one type in the order in which libpam runs them.

    Raises:
        StackError: files include one another without an end.
    """
    return tuple(_walk(files, service, kind, 0, 0))


def _walk(files: Files, name: str, kind: str, level: int, depth: int) -> Iterator[Entry]:
    if depth > DEEPEST:
        raise StackError(f"{name}: included more than {DEEPEST} deep")
    for index, piece in enumerate(files[name]):
        rule = piece.rule
        if rule is None or rule.type not in (kind, INCLUDE):
            continue
        control = rule.control.lower()
        if not rule.includes or control == "substack":
            yield Entry(name, index, level, rule)
        if rule.includes:
            yield from _walk(files, rule.target, kind, level + (control == "substack"), depth + 1)


def landing(levels: tuple[int, ...], start: int, count: int) -> int:
    """Where a jump goes, as libpam's dispatcher counts it.

    Args:
        levels: the substack level of each rule.
        start: the rule that jumps.
        count: over how many.

    Raises:
        StackError: it would leave the stack, for which libpam fails.
    """
    at, level = start, levels[start]
    while at + 1 < len(levels) and levels[at + 1] >= level and count:
        at = _unit_end(levels, at + 1, level)
        count -= 1
    if count:
        raise StackError("a jump leaves the stack")
    return at + 1


def distance(levels: tuple[int, ...], start: int, target: int) -> int:
    """The inverse of `landing`: the count that goes from `start` to `target`.

    Raises:
        StackError: no jump goes there.
    """
    at, level, count = start, levels[start], 0
    while at + 1 < target:
        at = _unit_end(levels, at + 1, level)
        count += 1
    if at + 1 != target:
        raise StackError("a jump would end inside a substack")
    return count


def _unit_end(levels: tuple[int, ...], at: int, level: int) -> int:
    while at + 1 < len(levels) and levels[at + 1] > level:
        at += 1
    return at
