"""slurmctld, slurmdbd and the slurmds, asked and told through Slurm's commands and the site's own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from hpctools.conf.apply.cluster import Pause
from hpctools.conf.apply.steps import told
from hpctools.conf.plan.model import Need, Step
from hpctools.conf.text import fold
from hpctools.errors import ApplyError, CommandError, CommandTimeout, UnreachableError
from hpctools.site.daemons import NODES, DaemonCommands
from hpctools.slurm import run
from hpctools.slurm.environment import asking
from hpctools.slurm.parse import unfold

_ASK_SECONDS = 15.0
_PAUSE_SECONDS = 0.05
# systemd kills what does not end after 90 s (DefaultTimeoutStopSec), as a slurmctld that hangs.
_STOP_SECONDS = 90.0
# slurmctld knows these, but no slurmd of theirs could answer.
_ABSENT = re.compile(r"POWER(ED|ING)_(DOWN|UP)|NOT_RESPONDING|DOWN|UNKNOWN|FUTURE|PLANNED_DOWN|\*|~|#|%")

# No job begins on these; all but the first were taken out of service by somebody, or by slurmctld. (One whose
# state is UNKNOWN takes jobs as soon as its slurmd registers.)
_OUT_OF_SERVICE = {"DRAIN", "DOWN", "FAIL", "ERROR", "FUTURE"}


@dataclass(frozen=True)
class _Node:
    name: str
    state: str
    started: float | None
    reason: str

    @property
    def present(self) -> bool:
        return not _ABSENT.search(self.state)

    @property
    def sick(self) -> bool:
        return "INVAL" in self.state

    @property
    def takes_jobs(self) -> bool:
        """Whether it is neither drained nor out of service; one that is powered down is started for a job."""
        return not set(re.split(r"\W+", self.state)) & _OUT_OF_SERVICE


class SlurmDaemons:
    """See the Protocol `Daemons`.

    Args:
        commands: how this site restarts its daemons.
        nodes: how many nodes there are; limits of waits grow with it.
    """

    def __init__(self, commands: DaemonCommands, nodes: int) -> None:
        self._commands = commands
        self._limit = 60 + nodes * 0.05
        self._controller_limit = 20 + nodes * 0.02

    def controller_answers(self) -> bool:
        """See Daemons."""
        try:
            return "is UP" in _ask("scontrol", "ping", check=False)
        except CommandTimeout as error:
            raise UnreachableError(
                f"slurmctld is neither up nor down: {error.message}",
                "it hangs or is very busy: see its log, `sdiag`, and the load of its host",
            ) from error

    def accounting_answers(self) -> bool:
        """See Daemons."""
        try:
            _ask("sacctmgr", "-nP", "show", "cluster", "format=Cluster")
        except (CommandError, UnreachableError):
            return False
        return True

    def carry_out(self, step: Step, pause: Pause) -> None:
        """See Daemons."""
        actions: dict[Need, Callable[[Step, Pause], None]] = {
            Need.RECONFIGURE: self._reconfigure,
            Need.RESTART_SLURMCTLD: self._restart_controller,
            Need.RESTART_SLURMDBD: self._restart_accounting,
            Need.RESTART_SLURMDS: self._restart_nodes,
        }
        if step.need in actions:
            actions[step.need](step, pause)

    def _reconfigure(self, step: Step, pause: Pause) -> None:
        try:
            self._tell(["scontrol", "reconfigure"], step, self._limit)
        except ApplyError as error:
            if not self.controller_answers():
                raise ApplyError(f"slurmctld ended over the new configuration ({error.message})") from error
            raise
        # From 23.11 on the command succeeds though slurmctld may end when it loads its plugins (measured).
        what = "slurmctld does not answer after it was reconfigured"
        self._until(self.controller_answers, what, pause, self._controller_limit)

    def _restart_controller(self, step: Step, pause: Pause) -> None:
        began = int(time.time())
        self._tell(self._commands.restart_slurmctld, step, self._limit + _STOP_SECONDS)
        what = "slurmctld does not answer after its restart"
        self._until(lambda: _booted() >= began, what, pause, self._controller_limit)

    def _restart_accounting(self, step: Step, pause: Pause) -> None:
        self._tell(self._commands.restart_slurmdbd, step, self._limit + _STOP_SECONDS)
        what = "slurmdbd does not answer after its restart"
        self._until(self.accounting_answers, what, pause, self._limit)

    def _restart_nodes(self, step: Step, pause: Pause) -> None:
        """Nodes that were not there before are restarted too, but nobody waits for them."""
        awaited = {node.name for node in _nodes(step.nodes) if node.present}
        began = int(time.time())
        words = [word.replace(NODES, fold(step.nodes)) for word in self._commands.restart_slurmds]
        self._tell(words, step, self._limit + _STOP_SECONDS)
        late: list[str] = []

        def registered() -> bool:
            seen = _nodes(sorted(awaited))
            late[:] = [n.name for n in seen if not n.present or n.started is None or n.started < began]
            return not late

        try:
            self._until(registered, "slurmds do not register again", pause, self._limit)
        except ApplyError as error:
            raise ApplyError(f"{error.message}: {fold(late)}", error.remedy) from None

    def sick(self) -> dict[str, str]:
        """See Daemons.

        Without `-t inval`: until 25.05 sinfo refuses these words (sinfo/opts.c), though it prints them.
        """
        rows = _ask("sinfo", "-ahN", "-o", "%N|%T|%E").splitlines()
        cells = (row.split("|", 2) for row in rows if row.count("|") > 1)
        return {name: why for name, state, why in cells if state.startswith("inval")}

    def jobs_on(self, nodes: Sequence[str]) -> tuple[int, ...]:
        """See Daemons."""
        states = "--states=running,suspended,completing,configuring,stopped"
        return tuple(int(row) for row in _ask("squeue", "-h", states, "-o", "%A", "-w", fold(nodes)).split())

    def taking_jobs(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """See Daemons."""
        return tuple(node.name for node in _nodes(nodes) if node.takes_jobs)

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        """See Daemons."""
        if nodes:
            _ask("scontrol", "update", f"nodename={fold(nodes)}", "state=drain", f"reason={reason}")

    def resume(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """See Daemons.

        Not by state=resume: that would also bring nodes back that somebody has set DOWN or FAIL meanwhile.
        A refused node among them would make the whole call fail (_valid_node_state_change in node_mgr.c).
        """
        drained = [node for node in _nodes(nodes) if "DRAIN" in node.state]
        able = [node.name for node in drained if not node.sick]
        if able:
            _ask("scontrol", "update", f"nodename={fold(able)}", "state=undrain")
        return tuple(node.name for node in drained if node.sick)

    def _tell(self, argv: Sequence[str], step: Step, limit: float) -> None:
        try:
            run.run(argv, timeout=limit, new_session=True)
        except CommandError as error:
            said = f": {error.stderr_tail}" if error.stderr_tail else ""
            raise ApplyError(f"{told(step)} failed: {error.message}{said}", error.remedy) from error

    def _until(self, true: Callable[[], bool], what: str, pause: Pause, limit: float) -> None:
        end = time.monotonic() + limit
        while not true():
            if time.monotonic() >= end:
                raise ApplyError(f"{what} within {limit:.0f} s", "see its log")
            pause(_PAUSE_SECONDS)


def _ask(*argv: str, check: bool = True) -> str:
    return run.run(argv, timeout=_ASK_SECONDS, check=check, env=asking(), new_session=True).stdout


def _booted() -> float:
    """When the slurmctld that answers was started, in Unix seconds; 0 when none answers."""
    if "is UP" not in _ask("scontrol", "ping", check=False):
        return 0.0
    found = re.search(
        r"^BOOT_TIME\s*=\s*(\S+)", _ask("scontrol", "show", "config", check=False), re.MULTILINE
    )
    return _seconds(found[1]) or 0.0 if found else 0.0


def _nodes(names: Sequence[str]) -> list[_Node]:
    if not names:
        return []
    text = _ask("scontrol", "--oneliner", "show", "node", fold(names), check=False)
    return [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _node(line: str) -> _Node:
    fields = dict(part.partition("=")[::2] for part in line.split())
    reason = re.search(r"\bReason=(.*?)(?: \[|$)", line)
    started = _seconds(fields.get("SlurmdStartTime", ""))
    return _Node(unfold(fields["NodeName"])[0], fields.get("State", ""), started, reason[1] if reason else "")


def _seconds(text: str) -> float | None:
    """Slurm's local time, such as 2026-11-21T14:53:40, in Unix seconds; None for `None` and `Unknown`."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").timestamp()
    except ValueError:
        return None
