"""What an agent can be counted by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpctools.login.agent.agent import Agent
from hpctools.login.agent.sessions import unattended

Figure = tuple[str, str, float]


class Figures:
    """The figures of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def sessions(self) -> Mapping[str, int]:
        """Open sessions by kind; a tmux that its user does not look at is one of kind `tmux`."""
        counts = {"ssh": 0, "ssm": 0, "tmux": 0}
        sample = self._agent.sample
        if sample is not None:
            for session in sample.sessions:
                counts[session.kind] += 1
            counts["tmux"] = sum(1 for _ in unattended(sample.processes, sample.sessions))
        return counts

    def gauges(self) -> Iterator[Figure]:
        """Name, help and value of what goes up and down."""
        agent, node = self._agent, self._agent.node
        yield "cpu_used", "Part of the CPUs that is in use, averaged over about a minute.", node.cpu
        yield "memory_used", "Part of the memory that is in use.", node.memory
        yield "draining", "1 while the node takes no new sessions.", float(node.draining)
        closed = float(agent.standing != "open")
        yield "sshd_refuses", "1 while the node's sshd refuses people or does not answer.", closed
        yield "service_up", "1 while the service answers.", float(agent.reporter.silent_since is None)
        if agent.carer is not None:
            limited = sum(1 for each in agent.carer.standings.values() if each.level)
            yield "limited_users", "People under a penalty.", limited

    def counters(self) -> Iterator[Figure]:
        """Name, help and value of what only grows."""
        agent = self._agent
        yield "reports", "Reports that the service took.", agent.reporter.reports
        yield "report_failures", "Reports that it did not take.", agent.reporter.failures
        yield "sessions_ended", "Sessions that the agent ended.", agent.ended
        if agent.carer is not None:
            yield "penalties", "Penalties that began.", agent.carer.penalties
