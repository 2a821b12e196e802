"""What to do about a refusal of Slurm's, where its own words do not say it."""

from __future__ import annotations

_REMEDIES = {
    "No partition specified or system default partition": (
        "this cluster has no default partition: name yours with --partition (`sinfo -s` lists them)"
    ),
    "accounting storage is disabled": (
        "this cluster keeps no accounts of jobs (AccountingStorageType in slurm.conf): ask its operators for "
        "slurmdbd, or see `scontrol show job` for those that are not long over"
    ),
}


def remedy_of(words: str) -> str:
    """The remedy for what a command of Slurm's said; empty where its words are enough.

    >>> remedy_of("sbatch: error: Batch job submission failed: Invalid account")
    ''
    """
    return next((remedy for refusal, remedy in _REMEDIES.items() if refusal in words), "")
