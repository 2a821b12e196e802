"""Which host keys each login node has: a note of each in the folder of keys, before an old key may go.

ssh forgets a key that a node does not prove. So the next keys take the place of the old ones when all nodes
prove both, and the old ones go when all nodes show the new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hpctools.errors import HpctoolsError
from hpctools.login import key_files

_INSTALLED = "installed."
"""Then a node's name: the fingerprints of the keys by which its sshd goes, one a line; nothing where it has
none of these, so that the node is still waited for."""
_SHOWS = "shows:"
"""Before a fingerprint: this key is the first of its kind, which sshd shows. It only proves the others."""


def installed(folder: Path) -> Mapping[str, frozenset[str]]:
    """The fingerprints of the keys that each node was given, by its name."""
    return {
        node: frozenset(word for word in words if not word.startswith(_SHOWS))
        for node, words in _notes(folder).items()
    }


def showing(folder: Path) -> Mapping[str, frozenset[str]]:
    """The fingerprints of the keys that each node shows, by its name; earlier releases did not tell."""
    return {
        node: frozenset(word.removeprefix(_SHOWS) for word in words if word.startswith(_SHOWS))
        for node, words in _notes(folder).items()
    }


def write(folder: Path, node: str, prints: Iterable[str], shown: Iterable[str]) -> None:
    """Note down what a node has: the whole note or nothing."""
    lines = [*sorted(prints), *sorted(f"{_SHOWS}{each}" for each in shown)]
    note = folder / f"{_INSTALLED}{node.replace('/', '_')}"
    key_files.write(note, "".join(f"{each}\n" for each in lines), 0o600)


def check_having(folder: Path, nodes: Sequence[str], wanted: set[str]) -> None:
    """Whoever comes to a node without the next keys would not learn them, or forget them again.

    Raises:
        HpctoolsError: a node has not said that it has them.
    """
    need = "all login nodes need the next keys before they take the place of the old ones"
    _check(folder, installed(folder), nodes, wanted, need, "weeks later again --finish")


def check_showing(folder: Path, nodes: Sequence[str], wanted: set[str]) -> None:
    """Whoever has come to a node without the old keys is warned by one that still shows these.

    Raises:
        HpctoolsError: a node has not said that it shows the new ones.
    """
    need = "all login nodes need to show the new keys before the old ones go"
    _check(folder, showing(folder), nodes, wanted, need, "then again --retire")


def _check(
    folder: Path,
    told: Mapping[str, frozenset[str]],
    nodes: Sequence[str],
    wanted: set[str],
    need: str,
    again: str,
) -> None:
    known = {**dict.fromkeys(nodes, frozenset[str]()), **told}
    without = sorted(node for node, prints in known.items() if not wanted <= prints)
    if known and not without:
        return
    who = f"{', '.join(without)} did not say so" if without else "no login node has said so"
    raise HpctoolsError(
        f"{need}, and {who}",
        f"on each: hpctools login host-keys install {folder}, and {again}; "
        f"for a node that is gone: rm {folder}/{_INSTALLED}NODE; --force asks nobody",
    )


def _notes(folder: Path) -> dict[str, list[str]]:
    notes = sorted(folder.glob(f"{_INSTALLED}*"))
    return {each.name.removeprefix(_INSTALLED): each.read_text().split() for each in notes}
