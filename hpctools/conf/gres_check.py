"""Why a node is INVALID for its generic resources: slurmctld's words, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpctools.conf.gres import node_gres
from hpctools.site.gpus import Gpus

# slurmctld's reason, from gres.c (`gres_node_config_validate`): the same words from 22.05 to 26.05.
_FEWER = re.compile(
    r"(?:gres/)?(\w+)(?::[\w.-]+)? count (?:reported lower than configured|too low) \((\d+) < (\d+)\)"
)


@dataclass(frozen=True)
class GresProblem:
    """A node that does not have what its line in slurm.conf states.

    Attributes:
        message: what is wrong and where.
        remedy: what to do next.
    """

    message: str
    remedy: str


def explain(node: str, reason: str, gpus: Gpus | None) -> GresProblem | None:
    """Say what a node's reason means, when it is that fewer resources are there than stated.

    A node with fewer MIG slices than its line is not used at all: it is INVALID until slurmd finds them all,
    or the site states fewer.

    Args:
        node: its name.
        reason: what `scontrol show node` gives as Reason.
        gpus: what the site says of its GPUs.
    """
    found = _FEWER.search(reason)
    if found is None:
        return None
    kind, there, stated = found.groups()
    what = "GPUs or MIG slices" if kind == "gpu" else kind
    message = f"node {node} has {there} of the {stated} {what} that its line in slurm.conf states"
    return GresProblem(message, _remedy(gpus))


def _remedy(gpus: Gpus | None) -> str:
    listed = ",".join(map(str, node_gres(gpus))) or "none"
    compare = f"the site says {listed}; compare with `slurmd -G` and `nvidia-smi -L` on the node"
    if gpus is None or not gpus.layout:
        return f"{compare}, repair it or correct `gpus` in the site file"
    return f"{compare}, make the slices again (nvidia-smi mig -cgi ... -C) or correct `mig` in the site file"
