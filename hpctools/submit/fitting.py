"""Whether what an elastic run is asked to be fits together, whatever the cluster allows: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctools.errors import SubmitError, UsageError
from hpctools.submit.arrays import Array
from hpctools.submit.intent import Intent
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.script import command_launcher, launchers

if TYPE_CHECKING:
    from hpctools.submit.policy_file import PolicyFile

_LIVE_ONLY = ("crash", "nonFinite", "lossSpike", "slowRank", "rules")


def agreed_sizes(asked: NodeSizes | None, policy: PolicyFile | None) -> NodeSizes:
    """The sizes that `--nodes` and the policy file together ask for.

    Raises:
        UsageError: neither says any, or one contradicts the other.
        SubmitError: only `asked` says sizes, and the file has settings for another. Where the file has sizes,
            it may be shared by runs that choose among them.
    """
    stated = policy.sizes if policy else ()
    place = policy.place("elasticPolicy") if policy else ""
    if asked is None:
        if not stated:
            raise UsageError(
                f"{place}: nothing says how many nodes the run may have",
                "give minReplicas and maxReplicas there, or --nodes MIN:MAX",
            )
        return NodeSizes(stated)
    if stated and not set(asked.totals) <= set(stated):
        allowed = ", ".join(map(str, stated))
        raise UsageError(
            f"--nodes {asked} does not fit {place}, which allows {allowed}",
            "leave out --nodes, or take of these sizes",
        )
    if policy and not stated:
        policy.check_sizes(asked.totals)
    return asked


def check_saving(intent: Intent, policy: PolicyFile | None) -> None:
    """Refuse in restart mode what is for the loaders of hpctools.elastic.

    Raises:
        SubmitError, UsageError: says what is for which.
    """
    if intent.settings.get("elastic-mode") != "restart":
        return
    if policy and policy.checkpoint:
        raise SubmitError(
            f"{policy.place('checkpoint')}: checkpoint: is for the loaders of hpctools.elastic, and in "
            "restart mode a script saves by itself",
            "leave the section out, or train with elastic.Loader, without --elastic-mode=restart or torchrun",
        )
    if policy:
        _check_rules(policy)
    if "resume" in intent.settings:
        raise UsageError(
            "--resume is for checkpoints of hpctools.elastic, and in restart mode a script has its own",
            "leave it out: the script goes on from what it finds where it saves",
        )


def _check_rules(policy: PolicyFile) -> None:
    """What nothing in restart mode could ever meet would be trusted in vain."""
    stated = policy.recovery.get("metrics") or {}
    for name in (name for name in _LIVE_ONLY if stated.get(name) not in (None, False, [])):
        why = "every crash restarts the ranks" if name == "crash" else "nobody tells numbers of the loop"
        raise SubmitError(
            f"{policy.place(f'metrics.{name}')}: metrics.{name} does nothing in restart mode, where {why}",
            "leave it out; runPolicy.restartPolicy says how often ranks are restarted, and "
            "logMonitoringConfiguration watches lines that the script prints",
        )


def check_places(policy: PolicyFile | None, array: Array | None) -> None:
    """Refuse runs that save in one place: they would go on from each other's checkpoints, and remove them.

    Raises:
        SubmitError: says how each has a place of its own.
    """
    if policy is None or array is None or len(array.indices) < 2 or not policy.checkpoint.get("folder"):
        return
    raise SubmitError(
        f"{policy.place('checkpoint.folder')}: checkpoint.folder is one place, and the runs of --array would "
        "go on from each other's checkpoints there, and remove them",
        "leave it out: each run saves in its own folder; or give elastic.Checkpoint(folder=...) in the "
        "script, with $HPCTOOLS_ARRAY_INDEX in it",
    )


def check_launchers(intent: Intent, command: tuple[str, ...]) -> None:
    """Refuse what starts processes itself.

    Args:
        command: what runs, where it is no script.

    Raises:
        SubmitError: names it, with its line in a script.
    """
    remedy = (
        "the agent starts your program once per worker, so start the program itself; a script for torchrun "
        "runs in restart mode: hp-submit --nodes MIN:MAX -- torchrun SCRIPT"
    )
    if found := command_launcher(command) if command else None:
        raise SubmitError(f"{found} starts processes itself, which an elastic run's agent does", remedy)
    for launcher in launchers(intent.script) if intent.script else ():
        name = intent.script.name if intent.script else ""
        raise SubmitError(
            f"{name} line {launcher.line}: {launcher.name} starts processes itself, which an elastic "
            "run's agent does",
            remedy,
        )
