"""Settings of slurm.conf for nodes that come when there is work, and go again."""

from __future__ import annotations

from collections.abc import Sequence

from hpctools.conf.text import Said, fold
from hpctools.conf.topology import ComputeGroup
from hpctools.site.model import Site
from hpctools.slurm.versions import Release, hides_powered_down_nodes, tells_nodes_each_others_addresses

_LOCATION = ("cluster", "power_saving")

# slurm.conf(5): TreeWidth may not be larger.
_WIDEST_TREE = 65_533


def power_settings(site: Site, groups: Sequence[ComputeGroup], release: Release) -> dict[str, object]:
    """Return the settings of power saving; none for a site whose nodes stay."""
    power = site.cluster.power_saving
    if power is None:
        return {}
    static = [name for group in groups for name in group.static]
    return {
        **_stated(
            ResumeProgram=("resume_program", power.resume_program),
            SuspendProgram=("suspend_program", power.suspend_program),
            ResumeFailProgram=("resume_fail_program", power.resume_fail_program),
            SuspendTime=("suspend_time", power.suspend_time),
            ResumeTimeout=("resume_timeout", power.resume_timeout),
            SuspendTimeout=("suspend_timeout", power.suspend_timeout),
            ResumeRate=("resume_rate", power.resume_rate),
            SuspendRate=("suspend_rate", power.suspend_rate),
        ),
        # The nodes that are always there stay, however long they are idle.
        "SuspendExcNodes": fold(static) or None,
        # Nodes that are powered down are hidden otherwise, from administrators too.
        "PrivateData": "cloud" if hides_powered_down_nodes(release) else None,
        # Without each other's addresses nodes cannot pass messages on.
        "TreeWidth": None if tells_nodes_each_others_addresses(release) else _WIDEST_TREE,
    }


def _stated(**settings: tuple[str, object]) -> dict[str, object]:
    return {key: Said(value, (*_LOCATION, word)) for key, (word, value) in settings.items()}
