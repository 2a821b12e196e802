"""How partitions give nodes to one alone, in the words of all releases: pure.

From 26.05 on slurm.conf takes, and scontrol shows, one word for it: `Exclusive=NO|NODE|USER|TOPO`. The words
before it are taken still (OverSubscribe=EXCLUSIVE, ExclusiveUser, ExclusiveTopo), and several may be true at
once. Of these the first of TOPO, NODE and USER is shown, and whole nodes as OverSubscribe=NO
(slurm_sprint_partition_info in Slurm's partition_info.c).
"""

from __future__ import annotations

from collections.abc import Mapping

_WORD = "exclusive"


def in_old_words(partition: Mapping[str, str]) -> dict[str, str]:
    """Say what `Exclusive` of a partition means in the words that all releases know; it stays itself.

    Args:
        partition: values by key in lower case, of a file or as slurmctld shows them.
    """
    word = partition.get(_WORD, "").upper()
    # read_config.c reads it last: it takes back what the older words say.
    old = ("exclusiveuser", "exclusivetopo") if word else ()
    kinds = {key: "NO" for key in old if key in partition}
    if word in ("USER", "TOPO"):
        kinds[f"exclusive{word.lower()}"] = "YES"
    if word in ("NO", "NONE") and partition.get("oversubscribe", "").upper() == "EXCLUSIVE":
        kinds["oversubscribe"] = "NO"
    if word in ("NODE", "TOPO"):  # read_config.c: "TOPO implies NODE"
        kinds["oversubscribe"] = "EXCLUSIVE"
    return {**partition, **kinds}


def hides(shown: Mapping[str, str], key: str) -> bool:
    """Whether slurmctld tells nothing of a partition's key, since it shows a stronger word.

    TOPO hides whole nodes, too: with ExclusiveTopo=YES and OverSubscribe=NO it shares them.

    Args:
        shown: the partition as it runs.
        key: in lower case.
    """
    hidden = {"NODE": ("exclusiveuser",), "TOPO": ("exclusiveuser", "oversubscribe")}
    return key in hidden.get(shown.get(_WORD, "").upper(), ())
