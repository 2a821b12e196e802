"""What is kept: slurmctld's state, and slurmdbd's sums and jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpctools.doctor.check import checks
from hpctools.doctor.installation import Slurmdbd, StateFolder
from hpctools.doctor.model import Finding, Severity

LEAST_BYTES = 512 * 1024**2
LEAST_INODES = 10_000
ROLLUP_SECONDS = 3600
ROLLUP_GRACE = 1800
FORGETFUL = ("tmpfs", "ramfs")


def state_has_room(state: StateFolder) -> Iterator[Finding]:
    """slurmctld ends, or forgets jobs, when it cannot save them."""
    short = state.free_inodes is not None and state.free_inodes < LEAST_INODES
    if state.free_bytes < LEAST_BYTES or short:
        yield Finding(
            state.path,
            f"{state.free_bytes // 1024**2} MiB"
            + (f" and {state.free_inodes} files" if state.free_inodes is not None else "")
            + " are left on its file system",
            "slurmctld cannot save jobs: what is submitted is lost at its next start",
            "make room, or move StateSaveLocation (with slurmctld stopped)",
        )


def state_is_slurms_alone(config: Mapping[str, str], state: StateFolder) -> Iterator[Finding]:
    """It holds job scripts with their environments."""
    user = config.get("SlurmUser", "slurm").partition("(")[0]
    if state.owner != user:
        yield Finding(
            state.path,
            f"it is {state.owner}'s, and SlurmUser is {user}",
            "slurmctld cannot save its state",
            f"chown -R {user} {state.path}, then restart slurmctld",
        )
    elif state.mode & 0o022:
        yield Finding(
            state.path,
            f"it has mode {state.mode:04o}",
            "others may put jobs of anybody into the controller's state",
            f"chmod 700 {state.path}",
        )
    elif state.mode & 0o004:
        yield Finding(
            state.path,
            f"it has mode {state.mode:04o}",
            "everybody may look for job scripts and their environments there",
            f"chmod 700 {state.path}",
            Severity.WARNING,
        )


def state_outlives_a_reboot(state: StateFolder) -> Iterator[Finding]:
    """Memory is no place for it."""
    if state.kind in FORGETFUL:
        yield Finding(
            state.path,
            f"it lies on {state.kind}",
            "all jobs, reservations and node states are gone after a reboot",
            "move StateSaveLocation to a disk that both controllers share (with slurmctld stopped)",
        )


def usage_is_summed_up(slurmdbd: Slurmdbd) -> Iterator[Finding]:
    """slurmdbd sums up usage every hour; fair share and reports live on it."""
    last = slurmdbd.rolled_up if slurmdbd.rolled_up is not None else slurmdbd.since
    # It runs on the full hour, and once at its start.
    if slurmdbd.now - last > ROLLUP_SECONDS + ROLLUP_GRACE:
        yield Finding(
            "slurmdbd",
            f"it last summed up usage {(slurmdbd.now - last) // 60} minutes ago",
            "fair share, GrpTRESMins and sreport stand still",
            "read slurmdbd's log for slow or failing queries; runaway jobs stop it too",
        )


def no_job_runs_away(jobs: frozenset[int], unended: frozenset[int]) -> Iterator[Finding]:
    """Jobs that run for slurmdbd and are unknown to slurmctld."""
    runaway = sorted(unended - jobs)
    if runaway:
        shown = ", ".join(map(str, runaway[:10])) + (", ..." if runaway[10:] else "")
        yield Finding(
            "slurmdbd",
            f"{len(runaway)} jobs run there and nowhere else: {shown}",
            "they are billed and counted against limits for ever, and spoil the sums of usage",
            "sacctmgr show runawayjobs lists them and offers to end them",
        )


CHECKS = checks(
    (state_has_room, "state"),
    (state_is_slurms_alone, "config state"),
    (state_outlives_a_reboot, "state"),
    (usage_is_summed_up, "slurmdbd"),
    (no_job_runs_away, "jobs unended"),
)
