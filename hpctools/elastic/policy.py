"""How a run may grow and shrink: HyperPod's elasticPolicy as plain data.

Its names and their meaning are those of the HyperPod training operator's `elasticPolicy`, and `scale_config`
is that of the HyperPod recipes: Amazon SageMaker AI developer guide, "Using elastic training in Amazon
SageMaker HyperPod". A replica there is a node here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hpctools.errors import ElasticError

LARGEST = 999_999


@dataclass(frozen=True)
class ElasticPolicy:
    """The sizes that a run may have, and how patient it is.

    Attributes:
        sizes: allowed totals of nodes, ascending; the first is the baseline's.
        graceful_shutdown_s: seconds that those who leave have to finish their step and save; None: as long
            as Slurm leaves them (GraceTime). `gracefulShutdownTimeoutInSeconds`.
        scaling_timeout_s: seconds for which more nodes must be there before the run grows; None: the
            coordinator's own short wait. `scalingTimeoutInSeconds`.
        faulty_scale_down_s: seconds to wait for a node that broke to come back before the run goes on
            without it. `faultyScaleDownTimeoutInSeconds`.
        scale_up_snooze_s: seconds after a restart in which the run does not grow; None: 0, but in restart
            mode its own for scripts that ask for no events. `scaleUpSnoozeTimeInSeconds`.
        back_off_limit_s: the longest wait after growths that were undone at once, seconds; 0: it never waits
            for that; None: the growth rule's own limit. `backOffLimitInSeconds`, which HyperPod has not.
        scale_config: what the training shall know at a size, by that size. `scale_config` of the recipes.
    """

    sizes: tuple[int, ...]
    graceful_shutdown_s: float | None = None
    scaling_timeout_s: float | None = None
    faulty_scale_down_s: float = 0.0
    scale_up_snooze_s: float | None = None
    back_off_limit_s: float | None = None
    scale_config: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = self.sizes
        if not sizes or sizes[0] < 1 or any(low >= high for low, high in pairwise(sizes)):
            raise ElasticError(
                f"{list(sizes)} are no sizes of a run",
                "give numbers of nodes from 1, each larger than the one before",
            )

    @property
    def minimum(self) -> int:
        """Nodes of the baseline job, without which the run waits."""
        return self.sizes[0]

    @property
    def maximum(self) -> int:
        """The most nodes that the run may have."""
        return self.sizes[-1]

    def largest_within(self, nodes: int) -> int:
        """The largest allowed size that so many nodes make; 0 when they are too few for any."""
        return max((size for size in self.sizes if size <= nodes), default=0)

    def config(self, nodes: int) -> Mapping[str, Any]:
        """What the policy's `scale_config` says for a run of so many nodes; empty when it says nothing."""
        return self.scale_config.get(nodes, {})

    def to_json(self) -> dict[str, Any]:
        """The policy as JSON values."""
        return {
            "sizes": list(self.sizes),
            "graceful_shutdown_s": self.graceful_shutdown_s,
            "scaling_timeout_s": self.scaling_timeout_s,
            "faulty_scale_down_s": self.faulty_scale_down_s,
            "scale_up_snooze_s": self.scale_up_snooze_s,
            "back_off_limit_s": self.back_off_limit_s,
            "scale_config": {str(size): dict(values) for size, values in self.scale_config.items()},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ElasticPolicy:
        """The inverse of `to_json`; what is missing has its default, what is unknown is ignored.

        Raises:
            ElasticError: the sizes are none.
        """
        return cls(
            sizes=tuple(values.get("sizes", ())),
            graceful_shutdown_s=values.get("graceful_shutdown_s"),
            scaling_timeout_s=values.get("scaling_timeout_s"),
            faulty_scale_down_s=values.get("faulty_scale_down_s", 0.0),
            scale_up_snooze_s=values.get("scale_up_snooze_s"),
            back_off_limit_s=values.get("back_off_limit_s"),
            scale_config={int(size): dict(each) for size, each in values.get("scale_config", {}).items()},
        )


def replica_nodes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Nodes of each replica job, in the order in which they make the run larger."""
    return tuple(high - low for low, high in pairwise(sizes))
