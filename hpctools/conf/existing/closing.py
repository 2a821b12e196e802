"""What a site file says otherwise than the cluster has it, added in Slurm's own words until nothing is left.

The words of a site file bring defaults along. Where the cluster has something else, or nothing, the entry
`settings` says so; thus nothing that the words cannot express is lost or changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from hpctools.conf.accounts import AccountTree, Settings
from hpctools.conf.existing.cluster import spelled
from hpctools.conf.existing.words import Words, spell_setting
from hpctools.conf.plan.defaults import defaults, file_defaults
from hpctools.conf.plan.keys import NODE_WORDS, PARTITION_WORDS, node, partition, setting
from hpctools.conf.plan.meaning import Meaning, expand
from hpctools.conf.plan.slurmfile import parse_lines
from hpctools.conf.plan.values import plain
from hpctools.site.parameters import (
    AccountingParameters,
    ClusterParameters,
    ContainmentParameters,
    NodeParameters,
    PartitionParameters,
)
from hpctools.slurm.versions import Release


def close_accounts(site: Words, wanted: AccountTree, there: AccountTree) -> bool:
    """Make a site's accounts, people and tiers those that are there, in place.

    Args:
        site: the whole site file; it was compiled to `wanted`.
        wanted: the accounts that it stands for now.
        there: the accounts that it should stand for.

    Returns:
        Whether something was added, so that it is worth compiling again.
    """
    live_qos = {qos.name: qos.settings for qos in there.qos}
    live_accounts = {account.name: account.settings for account in there.accounts}
    live_people = {(row.user, row.account): row.settings for row in there.associations}
    owners = dict(_owners(site["departments"]))
    added = [_add(site["tiers"][qos.name], qos.settings, live_qos.get(qos.name)) for qos in wanted.qos]
    added += [
        _add(owners[account.name], account.settings, live_accounts.get(account.name))
        for account in wanted.accounts
    ]
    for row in wanted.associations:
        live = live_people.get((row.user, row.account))
        if live is not None and _missing(row.settings, live):
            people = owners[row.account].setdefault("members_limits", {})
            added.append(_add(people.setdefault(row.user, {}), row.settings, live))
    return any(added)


def _owners(entries: Iterable[Words]) -> Iterator[tuple[str, Words]]:
    for entry in entries:
        yield entry["name"], entry
        yield from _owners(entry.get("labs", ()))


def _add(entry: Words, wanted: Settings, there: Settings | None) -> bool:
    """Say in `settings` what differs; what is not there at all is nothing to take over."""
    missing = _missing(wanted, there) if there is not None else {}
    if missing:
        entry["settings"] = {**entry.get("settings", {}), **missing}
    return bool(missing)


def _missing(wanted: Settings, there: Settings) -> Mapping[str, str]:
    return {
        key: spell_setting(key, there.get(key, ""))
        for key, value in wanted.items()
        if value != there.get(key, "")
    }


@dataclass
class Closing:
    """Adds to a draft what slurm.conf says and the draft does not.

    Attributes:
        words: the site file, changed in place.
        groups: nodes by node group.
        release: Slurm's, whose defaults need not be said.
        left_out: what cannot be said at all, a sentence each.
    """

    words: Words
    groups: Mapping[str, tuple[str, ...]]
    release: Release
    left_out: set[str] = field(default_factory=set)
    changed: bool = False

    def settings(self, wanted: Meaning, there: Meaning) -> None:
        """Settings of slurm.conf, in `cluster.parameters`."""
        usual = defaults(self.release)
        for key in sorted((wanted.settings.keys() | there.settings.keys()) - SECRETS):
            ours, theirs = (
                setting(key, one.settings[key].value if key in one.settings else usual.get(key, ""))
                for one in (wanted, there)
            )
            if ours != theirs:
                spelled = there.settings.get(key) or wanted.settings[key]._replace(value="")
                self._say(self.words["cluster"], _CLUSTER, spelled.key, spelled.value, "slurm.conf")

    def file(self, path: str, wanted: Mapping[str, str], there: Mapping[str, str]) -> None:
        """Settings of slurmdbd.conf or cgroup.conf, where the site file has words for the rest of it.

        Args:
            wanted, there: texts of configuration folders by path.
        """
        known, section = _FILES[path]
        if path not in there or path not in wanted:
            return
        ours, theirs = spelled(wanted, path), spelled(there, path)
        usual = file_defaults(path)
        for key in sorted((ours.keys() | theirs.keys()) - SECRETS):
            before, after = (
                plain(one[key].value if key in one else usual.get(key, "")) for one in (ours, theirs)
            )
            if before != after:
                pair = theirs.get(key) or ours[key]._replace(value="")
                self._say(self.words["cluster"].setdefault(section, {}), known, pair.key, pair.value, path)

    def gres(self, wanted: Mapping[str, str], there: Mapping[str, str]) -> None:
        """Lines of gres.conf, in the `gres_lines` of node groups.

        Args:
            wanted, there: texts of configuration folders by path.
        """
        ours, theirs = (_gres_lines(files) for files in (wanted, there))
        for entry in self.words["node_groups"]:
            first = self.groups[entry["name"]][0]
            stated = [text for nodes, text in theirs if first in nodes]
            if stated and sorted(stated) != sorted(text for nodes, text in ours if first in nodes):
                self.changed |= entry.get("gres_lines") != stated
                entry["gres_lines"] = stated

    def nodes(self, wanted: Meaning, there: Meaning) -> None:
        """Keys of node lines, in the `parameters` of node groups."""
        for entry in self.words["node_groups"]:
            first = self.groups[entry["name"]][0]
            ours, theirs = wanted.nodes[first].shape, there.nodes[first].shape
            for key in sorted(ours.keys() | theirs.keys()):
                if node(key, ours.get(key)) != node(key, theirs.get(key)):
                    self._say(entry, _NODE, NODE_WORDS.get(key, key), theirs.get(key, ""), first)

    def partitions(self, wanted: Meaning, there: Meaning) -> None:
        """Keys of partition lines, in the `parameters` of partitions."""
        for name, entry in _partitions(self.words):
            ours, theirs = wanted.partitions[name], there.partitions[name]
            for key in sorted((ours.keys() | theirs.keys()) - {"nodes"}):
                if partition(key, ours.get(key)) != partition(key, theirs.get(key)):
                    self._say(entry, _PARTITION, PARTITION_WORDS.get(key, key), theirs.get(key, ""), name)

    def _say(
        self, entry: Words, known: TypeAdapter[dict[str, str]], key: str, value: str, place: str
    ) -> None:
        text = f'"{value}"' if " " in value else value
        try:
            known.validate_python({key: text})
        except ValidationError:
            self.left_out.add(f"{key}={value} of {place}")
            return
        entry["parameters"] = {**entry.get("parameters", {}), key: text}
        self.changed = True


SECRETS = {"storagepass", "accountingstoragepass", "jobcomppass"}
"""Keys in lower case whose values are never taken over, shown or written."""

_FILES: Mapping[str, tuple[TypeAdapter[dict[str, str]], str]] = {
    "cgroup.conf": (TypeAdapter(ContainmentParameters), "containment"),
    "slurmdbd.conf": (TypeAdapter(AccountingParameters), "accounting"),
}
_CLUSTER: TypeAdapter[dict[str, str]] = TypeAdapter(ClusterParameters)
_NODE: TypeAdapter[dict[str, str]] = TypeAdapter(NodeParameters)
_PARTITION: TypeAdapter[dict[str, str]] = TypeAdapter(PartitionParameters)


def _gres_lines(files: Mapping[str, str]) -> list[tuple[Collection[str], str]]:
    """The lines of gres.conf about nodes: the nodes, and what is said of them."""
    lines = list(parse_lines(files, "gres.conf")) if "gres.conf" in files else []
    found: list[tuple[Collection[str], str]] = []
    for line in lines:
        names = [expand(pair.value) for pair in line if pair.key.lower() == "nodename"]
        text = " ".join(f"{pair.key}={pair.value}" for pair in line if pair.key.lower() != "nodename")
        found += [(set(nodes), text) for nodes in names]
    return found


def _partitions(words: Words) -> Iterator[tuple[str, Words]]:
    for entry in words["departments"]:
        if "partition" in entry:
            yield entry["name"], entry["partition"]
    for entry in words.get("partitions", ()):
        yield entry["name"], entry
