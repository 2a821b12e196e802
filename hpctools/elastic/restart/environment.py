"""The variables with which a script written for torchrun or HyperPod starts: pure.

Source: `torch.distributed.run`'s manual, "Environment Variables", and what its agent sets in
`torch/distributed/elastic/agent/server/local_elastic_agent.py` (torch 2.4 to 2.13).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctools.elastic.given_back import job_environment
from hpctools.elastic.restart.events import VARIABLE
from hpctools.elastic.spec import RunSpec

SHIM = Path(__file__).parent / "hyperpod"


@dataclass(frozen=True)
class Begin:
    """The coordinator's order to start a generation.

    Attributes:
        members: agents in the order of their nodes' ranks.
        place: of this node among them.
        host, port: where rank 0 is to open its store.
        restarts: after crashes so far.
        max_restarts: that many are allowed.
    """

    generation: int
    members: tuple[str, ...]
    place: int
    host: str
    port: int
    restarts: int
    max_restarts: int

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Begin:
        """From the message."""
        return cls(
            generation=int(message["generation"]),
            members=tuple(message["members"]),
            place=int(message["place"]),
            host=str(message["host"]),
            port=int(message["port"]),
            restarts=int(message["restarts"]),
            max_restarts=int(message["max_restarts"]),
        )


def rank_environment(
    spec: RunSpec, begin: Begin, local: int, files: tuple[Path, Path], inherited: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of one rank's process.

    Args:
        local: its place on the node, from 0.
        files: the slot of its events, and where it may write its error (`torch.distributed.elastic`).
        inherited: the agent's own environment.
    """
    per_node, nodes = spec.workers_per_node, len(begin.members)
    rank, world = begin.place * per_node + local, nodes * per_node
    events, error = files
    values = {
        "RANK": rank,
        "LOCAL_RANK": local,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": begin.place,
        "GROUP_WORLD_SIZE": nodes,
        "ROLE_NAME": spec.role or "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": begin.host,
        "MASTER_PORT": begin.port,
        "TORCHELASTIC_RESTART_COUNT": begin.restarts,
        "TORCHELASTIC_MAX_RESTARTS": begin.max_restarts,
        "TORCHELASTIC_RUN_ID": spec.id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 opens the store itself
        "TORCHELASTIC_ERROR_FILE": error,
        VARIABLE: events,
        "PYTHONPATH": _with_shim(inherited.get("PYTHONPATH", "")),
        "PYTHONUNBUFFERED": "1",
        "HPCTOOLS_SCALE_CONFIG": json.dumps(dict(spec.elastic_policy.config(nodes))),
    }
    defaults = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if per_node > 1:
        defaults["OMP_NUM_THREADS"] = "1"  # as torchrun, lest the workers take each other's cores
    given = {**defaults, **job_environment(inherited, spec)}
    return {**given, **{name: str(value) for name, value in values.items()}}


def _with_shim(path: str) -> str:
    return f"{SHIM}:{path}" if path else str(SHIM)
