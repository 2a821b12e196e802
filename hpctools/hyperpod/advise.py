"""Which of HyperPod's two styles fits a cluster, with which SlurmConfigStrategy, and why.

Source: the HyperPod developer guide's pages on the Slurm configuration, on the migration, on several
controllers and on continuous provisioning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from hpctools.hyperpod.files import Files
from hpctools.hyperpod.partitions import shared_groups
from hpctools.site.hyperpod_rules import site_partitions
from hpctools.site.model import Site

Style = Literal["slurmconfig", "legacy"]
Strategy = Literal["Managed", "Merge", "Overwrite"]


@dataclass(frozen=True)
class Situation:
    """What the advice depends on.

    Attributes:
        controllers: how many controllers there are.
        continuous: whether nodes are provisioned one by one.
        shared: the partitions of each node group that is in several, by the group's name.
        own_partitions: partitions that stand in slurm.conf beside those of the request.
        outside_database: whether accounting has a database outside the cluster.
        style: the style that somebody has chosen already.
        strategy: the strategy likewise.
    """

    controllers: int = 1
    continuous: bool = False
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own_partitions: tuple[str, ...] = ()
    outside_database: bool = False
    style: Style | None = None
    strategy: Strategy | None = None


@dataclass(frozen=True)
class Advice:
    """What fits.

    Attributes:
        style: where HyperPod should be told of Slurm.
        strategy: the SlurmConfigStrategy to state; None where none may be stated.
        reasons: why, a sentence each.
        conflicts: what was chosen and cannot work, a sentence each.
    """

    style: Style
    strategy: Strategy | None
    reasons: tuple[str, ...]
    conflicts: tuple[str, ...] = ()


def of_site(site: Site) -> Situation:
    """Return a site's situation."""
    section = site.hyperpod
    stated = {"managed": "Managed", "merge": "Merge", "overwrite": "Overwrite"}
    strategy: Strategy | None = None
    if section is not None and section.strategy is not None:
        strategy = stated[section.strategy]  # type: ignore[assignment]
    return Situation(
        controllers=len(site.cluster.controllers),
        continuous=section is not None and section.continuous,
        shared=shared_groups(site),
        own_partitions=tuple(sorted(site_partitions(site))),
        outside_database=section is not None and section.accounting_database is not None,
        style=section.style if section is not None else None,
        strategy=strategy,
    )


def of_files(files: Files) -> Situation:
    """Return the situation of a cluster's files; of what they share in slurm.conf the files tell nothing."""
    strategy = files.request.at("Orchestrator", "Slurm", "SlurmConfigStrategy").text
    name = files.legacy.at("controller_group").text
    counts = [
        group.at("InstanceCount").number or 0
        for group in files.groups
        if group.at("SlurmConfig", "NodeType").value == "Controller"
        or (name is not None and group.at("InstanceGroupName").text == name)
    ]
    database = files.request.at("Orchestrator", "Slurm", "AccountingDatabase").exists
    return Situation(
        controllers=max(sum(counts), 1),
        continuous=files.continuous,
        outside_database=database or files.legacy.at("slurm_configurations").exists,
        style="legacy" if files.style == "legacy" else "slurmconfig",
        strategy=strategy if strategy in ("Managed", "Merge", "Overwrite") else None,  # type: ignore[arg-type]
    )


def advise(situation: Situation) -> Advice:
    """Return what fits a situation."""
    several = situation.controllers > 1
    style: Style = "legacy" if several else "slurmconfig"
    if not several and situation.style == "legacy" and not situation.continuous:
        style = "legacy"
    strategy = None if style == "legacy" or situation.continuous else _strategy(situation)
    reasons = (*_style_reasons(situation, style), *_strategy_reasons(situation, style))
    return Advice(style, strategy, reasons, tuple(_conflicts(situation)))


def _strategy(situation: Situation) -> Strategy:
    if situation.shared or situation.own_partitions:
        return "Merge"
    return situation.strategy or "Managed"


def _style_reasons(situation: Situation, style: Style) -> Iterator[str]:
    if situation.controllers > 1:
        yield (
            f"{situation.controllers} controllers: HyperPod has them in the legacy style only, where"
            " slurm_configurations names their database, shared folder and topic"
        )
    elif style == "legacy":
        yield (
            "legacy was chosen and works; HyperPod checks nothing of provisioning_parameters.json before"
            " nodes fail, so the request (SlurmConfig) is the better place"
        )
    else:
        yield (
            "one controller: SlurmConfig keeps everything in the request, which HyperPod checks before it"
            " starts; no second file in S3 can disagree with it"
        )


def _strategy_reasons(situation: Situation, style: Style) -> Iterator[str]:
    if style == "legacy":
        yield "no SlurmConfigStrategy: it belongs to SlurmConfig"
        return
    if situation.continuous:
        yield "continuous provisioning always merges and refuses a SlurmConfigStrategy: none may be stated"
    for group, names in situation.shared.items():
        yield (
            f"the nodes of {group} are in several partitions ({', '.join(names)}), which Managed takes for"
            " drift: updates fail and roll back; Overwrite takes them out; Merge keeps them"
        )
    if situation.own_partitions and not situation.shared:
        own = ", ".join(situation.own_partitions)
        yield (
            f"the partitions beside HyperPod's own ({own}) are drift to Managed: updates fail and roll back;"
            " Overwrite takes them out; Merge keeps them"
        )
    if not (situation.continuous or situation.shared or situation.own_partitions):
        yield (
            "every node is in one partition of the request and in dev: Managed keeps slurm.conf as the"
            " request says; choose Merge if somebody is to change slurm.conf by hand"
        )


def _conflicts(situation: Situation) -> Iterator[str]:
    several = situation.controllers > 1
    if several and situation.style == "slurmconfig":
        yield f"SlurmConfig with {situation.controllers} controllers: choose legacy, or one controller"
    if several and situation.continuous:
        yield "continuous provisioning with several controllers: choose one of the two"
    if situation.continuous and situation.style == "legacy" and not several:
        yield "continuous provisioning with the legacy style: it reads no provisioning_parameters.json"
    if situation.continuous and situation.strategy is not None:
        yield f"{situation.strategy} with continuous provisioning: leave it out, or the request is refused"
    beside = bool(situation.shared or situation.own_partitions)
    if beside and not situation.continuous and situation.strategy in ("Managed", "Overwrite"):
        yield f"{situation.strategy} with partitions beside HyperPod's own: choose Merge"
    if situation.outside_database and not situation.continuous and not several:
        yield "a database outside the cluster: HyperPod takes it with continuous provisioning only"
