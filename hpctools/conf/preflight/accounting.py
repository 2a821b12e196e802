"""What becomes of a configuration's accounting where slurmdbd is out of reach: pure.

Measured: slurmctld starts without slurmdbd when its StateSaveLocation remembers associations and TRES. With
`accounting_storage/none` it ends at every TRES of GRES; 26.05 ends at a QoS that it does not know.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from hpctools.conf.preflight.rewriting import Edit, to
from hpctools.conf.preflight.statements import Statement
from hpctools.slurm.throwaway.tres_cache import packed_text

_QOS_KEYS = ("AllowQos", "DenyQos", "QoS")
_ACCOUNT_KEYS = ("AllowAccounts", "DenyAccounts")


@dataclass(frozen=True)
class Accounting:
    """What the live slurmctld remembers of slurmdbd.

    Attributes:
        memory: its `assoc_mgr_state`.
        coming: names of QoS and accounts that slurmdbd knows by the time the configuration goes live.
    """

    memory: bytes = field(repr=False)
    coming: frozenset[str] = frozenset()

    def edits(self, found: list[Statement]) -> tuple[dict[str, Edit], tuple[str, ...]]:
        """What must be changed for it: names that may be still to come are left out of the lists.

        What the memory holds may be somebody else of that name: a person, or an account called as a new QoS.
        """
        keys = (*_QOS_KEYS, *_ACCOUNT_KEYS)
        coming = {name for key in keys for name in _names(found, key)} & self.coming
        new = sorted(name for name in coming if packed_text(name) not in self.memory)
        said = f"{', '.join(new)}: slurmdbd does not know them yet and must hear of them first"
        return {key: _without(coming) for key in keys}, (said,) if new else ()


def _names(found: list[Statement], key: str) -> set[str]:
    lists = (each.words.get(key.lower(), "") for each in found if "partitionname" in each.words)
    return {name for names in lists for name in names.split(",") if name}


def _without(names: Collection[str]) -> Edit:
    return lambda value: ",".join(name for name in value.split(",") if name not in names)


def without_slurmdbd() -> tuple[dict[str, Edit], tuple[str, ...]]:
    """The changes that let slurmctld go without slurmdbd, and what is then not checked."""
    edits = {
        "AccountingStorageType": to("accounting_storage/none"),
        **dict.fromkeys(("AccountingStorageEnforce", "AccountingStorageTRES"), to("")),
        **dict.fromkeys((*_QOS_KEYS, *_ACCOUNT_KEYS), to("")),
        **dict.fromkeys(("TRESBillingWeights", "PriorityWeightTRES"), _without_gres),
    }
    said = (
        "accounts and QoS: slurmdbd is out of reach and no state of a live slurmctld was given, so "
        "AllowAccounts, AllowQos and the weights of GRES were left out",
        "running jobs: no state of a live slurmctld was given",
    )
    return edits, said


def _without_gres(value: str) -> str:
    return ",".join(part for part in value.split(",") if not part.strip().lower().startswith("gres/"))
