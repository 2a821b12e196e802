"""YAML text to plain data, with the line of everything in it.

The scalars follow YAML 1.2's core schema, not PyYAML's 1.1: `12:30:00` and `no` are text, not 45000 and
False. Tags that would build objects are refused, and so is the merge key `<<`. Sequences become tuples, so
that the data can be validated strictly and stays immutable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import yaml

from hpctools.site.findings import Finding, Location, spell_path

_MAX_NODES = 500_000  # a file whose aliases expand to more than this is an attack or a mistake
_DEEPEST = 200
_TOO_DEEP = "lists or mappings nested too deep"
_CORE = "tag:yaml.org,2002:"


_SCHEMA = (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,17})$", list("-+0123456789")),
    (
        "float",
        r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?$|^[-+]?[0-9]+[eE][-+]?[0-9]+$",
        list("-+.0123456789"),
    ),
)
"""The scalars of YAML 1.2's core schema (sec. 10.3.2)."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of `_SCHEMA`."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same on libyaml, where PyYAML has it: ten times as fast, but it counts on no end of stack."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _kind, _pattern, _first in _SCHEMA:
    _Loader.add_implicit_resolver(f"{_CORE}{_kind}", re.compile(_pattern), _first)
    _FastLoader.add_implicit_resolver(f"{_CORE}{_kind}", re.compile(_pattern), _first)


@dataclass
class Document:
    """The plain data of a YAML text.

    Attributes:
        data: mappings as dict, sequences as tuple, scalars as str, int, float, bool or None.
        lines: the line (from 1) of each location: a mapping entry's key, a sequence's item.
        of: what it describes, for findings.
        findings: what kept parts of the text from being read.
    """

    file: str
    data: object = None
    of: str = "a site"
    lines: dict[Location, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """Return the line of a location, or of the nearest thing around it that exists."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def finding(self, location: Location, found: str, expected: str) -> Finding:
        """Make a finding about a location of this document."""
        return Finding(self.file, self.line(location), spell_path(location), found, expected)


def parse(text: str, file: str, of: str = "a site") -> Document:
    """Read one YAML document.

    Args:
        text: the YAML.
        file: its name, for findings.
        of: what it describes, for findings.

    Returns:
        The document; its `findings` hold a syntax error, duplicate keys, foreign tags and the like.
    """
    document = Document(file, of=of)
    try:
        root = _compose(text)
    except yaml.MarkedYAMLError as error:
        document.findings.append(_syntax_finding(file, error))
    except yaml.YAMLError as error:
        document.findings.append(Finding(file, 0, "", str(error).splitlines()[0], "valid YAML"))
    except RecursionError:
        document.findings.append(Finding(file, 0, "", _TOO_DEEP, of))
    else:
        if root is not None:
            _Builder(document).build_root(root)
    return document


def _compose(text: str) -> yaml.Node | None:
    """Compose nodes, never objects.

    Raises:
        yaml.YAMLError: the text is no YAML; in the words of PyYAML's own parser, which are clearer.
        RecursionError: it is nested too deep.
    """
    if _is_shallow(text):
        try:
            return yaml.compose(text, Loader=_FastLoader)
        except yaml.YAMLError:
            pass
    return yaml.compose(text, Loader=_Loader)  # a subclass of SafeLoader, and only composed


def _is_shallow(text: str) -> bool:
    """Whether nothing is nested so deep that libyaml's binding, which recurses in C, might crash."""
    depth = deepest = 0
    for bracket in re.findall(r"[][{}]", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    # In block style each level takes a column before the first word of a line.
    indents = re.findall(r"^[ ?:-]+", text, re.MULTILINE)
    return deepest < _DEEPEST and max(map(len, indents), default=0) < _DEEPEST


def _syntax_finding(file: str, error: yaml.MarkedYAMLError) -> Finding:
    mark = error.problem_mark or error.context_mark
    context = f"{error.context}: " if error.context else ""
    told = f"{context}{error.problem}".removeprefix("found ")
    return Finding(file, mark.line + 1 if mark else 0, "", told, "valid YAML")


class _Builder:
    """Turns composed nodes into plain data, and notes lines and findings in a document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._open: set[int] = set()
        self._count = 0

    def build_root(self, node: yaml.Node) -> None:
        self._document.lines[()] = node.start_mark.line + 1
        try:
            self._document.data = self._build(node, ())
        except _TooLarge:
            of = self._document.of
            self._note((), f"more entries than {of} can have (aliases that expand?)", of)
        except RecursionError:
            self._note((), _TOO_DEEP, self._document.of)

    def _note(self, location: Location, found: str, expected: str) -> None:
        self._document.findings.append(self._document.finding(location, found, expected))

    def _build(self, node: yaml.Node, location: Location) -> object:
        self._count += 1
        if self._count > _MAX_NODES:
            raise _TooLarge
        if id(node) in self._open:
            self._note(location, "an alias to something that contains it", "no recursion")
            return None
        self._open.add(id(node))
        try:
            return self._dispatch(node, location)
        finally:
            self._open.discard(id(node))

    def _dispatch(self, node: yaml.Node, location: Location) -> object:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if node.tag not in (f"{_CORE}map", f"{_CORE}seq"):
            self._note(location, f"the tag {node.tag.replace(_CORE, '!!')}", "plain data without tags")
            return None
        if isinstance(node, yaml.MappingNode):
            return dict(self._entries(node, location))
        return tuple(self._items(node, location))

    def _items(self, node: yaml.Node, location: Location) -> Iterator[object]:
        for index, item in enumerate(node.value):
            here = (*location, index)
            self._document.lines[here] = item.start_mark.line + 1
            yield self._build(item, here)

    def _entries(self, node: yaml.MappingNode, location: Location) -> Iterator[tuple[str, object]]:
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._note(location, "a key that is not a word", "a word as key")
                continue
            here = (*location, key.value)
            if key.value == "<<" and not key.style:  # YAML 1.1's, which the core schema does not know
                text = "a merge key (<<), which is not carried out"
                self._document.findings.append(
                    Finding(self._document.file, line, spell_path(location), text, "the entries written out")
                )
                continue
            if key.value in first:
                text = f"the key {key.value!r} a second time (first on line {first[key.value]})"
                self._document.findings.append(
                    Finding(self._document.file, line, spell_path(here), text, "each key once")
                )
                continue
            first[key.value] = self._document.lines[here] = line
            yield key.value, self._build(value, here)

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> object:
        kind = node.tag.removeprefix(_CORE)
        try:
            return _SCALARS[kind](node.value)
        except (KeyError, ValueError):
            tag = node.tag.replace(_CORE, "!!")
            self._note(location, f"the tag {tag} on {node.value!r}", "plain data without tags")
            return None


class _TooLarge(Exception):
    """The document expands to more nodes than a site can have."""


def _no_value(_: str) -> None:
    return None


_SCALARS: dict[str, Callable[[str], object]] = {
    "str": str,
    "int": int,
    "float": float,
    "null": _no_value,
    "bool": lambda text: text.lower() == "true",
}
