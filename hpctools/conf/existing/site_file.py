"""A whole site file that says what a cluster has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from hpctools.conf.accounts import AccountTree
from hpctools.conf.existing.cluster import cluster_words, empty_blocks
from hpctools.conf.existing.machines import Machines, allowed, machines, partition_words
from hpctools.conf.existing.people import People, names_of, people
from hpctools.conf.existing.words import Words
from hpctools.conf.facts import Facts
from hpctools.conf.plan.meaning import Meaning, Raw, read_meaning
from hpctools.errors import HpctoolsError
from hpctools.slurm.versions import OLDEST, Release, reads_topology_yaml, spell_release

_SECTIONS = (
    "cluster",
    "node_groups",
    "departments",
    "partitions",
    "tiers",
    "default_accounts",
)


@dataclass(frozen=True)
class Existing:
    """What a cluster has.

    Attributes:
        files: texts of its configuration folder by path; secrets in them are never taken over.
        accounts: what slurmdbd knows, without `root`'s own association.
        descriptions: what people call the accounts, by account.
        release: Slurm's; None when nothing tells it.
    """

    files: Mapping[str, str]
    accounts: AccountTree
    descriptions: Mapping[str, str]
    release: Release | None = None


@dataclass(frozen=True)
class Draft:
    """A first draft of a site file.

    Attributes:
        words: the file, as YAML has it.
        groups: nodes by node group.
        left_out: what a site file cannot say, a sentence each.
    """

    words: Words
    groups: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]


def draft(existing: Existing, facts: Facts) -> Draft:
    """Say what a cluster has in the words of a site file.

    Args:
        existing: what there is.
        facts: where daemons listen; what they say need not be said again.

    Raises:
        HpctoolsError: a file cannot be understood, or there is no account.
    """
    meaning = read_meaning(existing.files)
    persons = people(existing.accounts, existing.descriptions)
    _check_accounts(existing, persons)
    found = machines(meaning, facts)
    release = spell_release(existing.release[:2]) if existing.release else ""
    words: Words = {
        "cluster": cluster_words(meaning, existing.files, release, facts),
        "node_groups": [group.words for group in found.groups],
        "departments": persons.departments,
        "partitions": list(_partitions(meaning, found, persons.departments, list(persons.tiers))),
        "tiers": persons.tiers,
        "default_accounts": persons.default_accounts,
    }
    words["departments"] = [_ordered(entry) for entry in persons.departments]
    groups = {group.words["name"]: group.nodes for group in found.groups}
    left_out = (*persons.left_out, *_without_nodes(found, existing), *_not_read(existing))
    return Draft({key: words[key] for key in _SECTIONS if words[key]}, groups, left_out)


def _check_accounts(existing: Existing, persons: People) -> None:
    """A site file without departments is none; which one there is to be is not ours to say."""
    if persons.departments:
        return
    cluster = existing.accounts.clusters[0]
    why = f"no account of cluster {cluster} has a name that a site file can have"
    if not existing.accounts.accounts:
        why = f"cluster {cluster} has no accounts"
    raise HpctoolsError(
        f"{why}, and a site file has one department at least",
        f"make one and import again: sacctmgr add account research cluster={cluster}",
    )


def _without_nodes(found: Machines, existing: Existing) -> Iterator[str]:
    partitions = (f"partition {name}" for name, groups in found.partitions.items() if not groups)
    for what in (*partitions, *(f"block {name}" for name in empty_blocks(existing.files))):
        yield f"{what} has no nodes: a site file cannot have it, and apply would remove it"


def _not_read(existing: Existing) -> Iterator[str]:
    """Files that count, and that no site file makes."""
    if "topology.yaml" in existing.files and reads_topology_yaml(existing.release or OLDEST):
        yield "topology.yaml: it goes on to say which nodes are close to each other"


_LAST = ("partition", "tiers", "limits", "members", "members_limits", "settings", "labs")


def _ordered(entry: Words) -> Words:
    """A department with what is long at its end; the entry itself is what others change."""
    for key in _LAST:
        if key in entry:
            entry[key] = entry.pop(key)
    return entry


def _partitions(
    meaning: Meaning, found: Machines, departments: list[Words], tiers: list[str]
) -> Iterator[Words]:
    """Entries of `partitions`; a department's own goes into the department."""
    accounts = {entry["name"]: frozenset(names_of([entry])) for entry in departments}
    by_name = {entry["name"]: entry for entry in departments}
    for name, raw in meaning.partitions.items():
        if not found.partitions[name]:
            continue  # `_without_nodes` tells of it
        terms = partition_words(raw, found.partitions[name])
        who = allowed(raw, "allowaccounts")
        if name in by_name and who == accounts[name]:
            by_name[name]["partition"] = terms
        else:
            yield {"name": name, **_access(raw, who, accounts, tiers), **terms}


def _access(
    raw: Raw, who: frozenset[str] | None, accounts: Mapping[str, frozenset[str]], tiers: list[str]
) -> Words:
    """Whom a shared partition is for, where whole departments say it."""
    words: Words = {}
    if who is not None:
        chosen = [name for name, below in accounts.items() if below <= who]
        if chosen and frozenset().union(*(accounts[name] for name in chosen)) == who:
            words["departments"] = chosen
    qos = allowed(raw, "allowqos")
    if qos is not None and qos <= set(tiers):
        words["tiers"] = [name for name in tiers if name in qos]
    return words


def spell(words: Words, heading: str) -> str:
    """Spell a site file as YAML.

    Args:
        words: the file.
        heading: what the comment at its beginning says, lines without `#`.
    """
    comment = "".join(f"# {line}".rstrip() + "\n" for line in heading.splitlines())
    parts = [
        yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
        for key, value in words.items()
    ]
    return "\n".join([comment, *parts])


class _Dumper(yaml.SafeDumper):
    """Lists and mappings of plain values on one line, the rest in blocks."""

    def represent_sequence(
        self, tag: str, sequence: Iterable[Any], flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        node = super().represent_sequence(tag, sequence, flow_style)
        node.flow_style = all(isinstance(item, yaml.ScalarNode) for item in node.value)
        return node

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        node.flow_style = all(isinstance(value, yaml.ScalarNode) for _, value in node.value)
        return node

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)
