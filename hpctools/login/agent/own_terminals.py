"""Terminals that no login made: of an editor's remote shell, Jupyter, a pane of a tmux. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpctools.login.agent.processes import Process
from hpctools.login.agent.sessions import OpenSession
from hpctools.login.agent.usage import FIRST_PERSON, MACHINES


def own_terminals(processes: Iterable[Process], sessions: Iterable[OpenSession]) -> Mapping[str, int]:
    """Terminals at which people's processes run, and whose these are, beside those of their sessions.

    What runs inside a session with a terminal is left out: who is there is told at that one.
    """
    here = [session for session in sessions if session.ttys]
    known = {tty for session in here for tty in session.ttys}
    inside = {process.key for session in here for process in session.processes}
    return {
        process.terminal: process.uid
        for process in processes
        if process.terminal
        and process.terminal not in known
        and process.key not in inside
        and process.uid >= FIRST_PERSON
        and process.uid not in MACHINES
    }
