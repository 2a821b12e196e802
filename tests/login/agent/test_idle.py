"""Idle sessions: warned, then closed; not those in which somebody types or something runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hpctools.login.agent.idle import Act, Watched, warning, watch
from hpctools.login.agent.processes import TICKS
from hpctools.login.agent.sessions import OpenSession, open_sessions
from hpctools.site.login_care import IdleSessions
from tests.login.node_processes import BOOT, connection, process

RULES = IdleSessions.model_validate({"after": "01:00:00", "warning": "00:10:00"})
KEY = "100-10000"
START = BOOT + 10_000 / TICKS


def session(tty: str = "pts/0", ticks: int = 0, tmux: bool = False) -> OpenSession:
    client = [process(110, 102, 1001, "tmux", name="tmux: client")] if tmux else []
    (found,) = open_sessions([*connection(100, "nlp1", 1001, tty, ticks), *client], BOOT)
    return found


def course(
    sessions: Mapping[float, OpenSession], typed: Mapping[float, float], rules: IdleSessions = RULES
) -> list[tuple[float, Act]]:
    """What is done at each moment, in seconds from the session's start, typing as told."""
    known: Mapping[str, Watched] = {}
    done = []
    last = 0.0
    for moment, seen in sessions.items():
        last = typed.get(moment, last)
        now = (moment, START + moment)
        known, acts = watch((seen,), known, {"pts/0": START + last}, now, rules)
        done += [(moment, act) for act in acts.values()]
    return done


def test_a_session_is_warned_once_and_then_closed() -> None:
    idle = session()
    moments = [0.0, 3599.0, 3600.0, 3700.0, 4199.0, 4200.0, 4300.0]
    assert course(dict.fromkeys(moments, idle), {}) == [
        (3600.0, "warn"),
        (4200.0, "close"),
        (4300.0, "close"),
    ]


def test_an_agent_that_begins_anew_does_not_know_what_ran_before() -> None:
    """Nobody typed for ten hours, but until a moment ago a program ran: it is not idle for an hour yet."""
    idle = session(ticks=36_000 * TICKS)
    moments = [36_000.0, 36_010.0, 39_590.0, 39_600.0]
    assert course(dict.fromkeys(moments, idle), {}) == [(39_600.0, "warn")]


@pytest.mark.parametrize("step", [7200.0, -7200.0])
def test_a_clock_that_is_set_closes_nobody_and_keeps_nobody(step: float) -> None:
    """A terminal tells a time of the clock before; idle is who typed nothing for an hour that has passed."""
    idle, known, done = session(), dict[str, Watched](), []
    for moment in (0.0, 1800.0, 1805.0, 3000.0, 5000.0, 5395.0, 5405.0):
        unix = START + moment + (step if moment >= 1805.0 else 0.0)
        typed = {"pts/0": unix - 5.0 if moment == 1800.0 else START + 1795.0 if moment > 1800.0 else START}
        seen, acts = watch((idle,), known, typed, (moment, unix), RULES)
        known = dict(seen)
        done += [(moment, act) for act in acts.values()]
    assert done == [(5395.0, "warn")]


@pytest.mark.parametrize("step", [7200.0, -7200.0])
def test_who_types_after_the_clock_was_set_is_not_idle(step: float) -> None:
    idle, known = session(), dict[str, Watched]()
    for moment in (0.0, 10.0, 3590.0, 3600.0, 7100.0):
        unix = START + moment + (step if moment > 10.0 else 0.0)
        typed = {"pts/0": START if moment < 3590.0 else START + step + 3585.0}
        seen, acts = watch((idle,), known, typed, (moment, unix), RULES)
        known = dict(seen)
        assert acts == {}


@pytest.mark.parametrize(
    ("title", "name", "is_spared"),
    [
        ("sbatch --wait job.sh", "sbatch", True),
        ("/usr/bin/sbatch -W job.sh", "sbatch", True),
        ("sbatch job.sh", "sbatch", False),
        ("/opt/hpctools/bin/python /opt/hpctools/bin/hp-submit --follow job.sh", "hp-submit", True),
        ("/opt/hpctools/bin/python /opt/hpctools/bin/hp-status 7 --watch", "hp-status", True),
        ("/opt/hpctools/bin/python /opt/hpctools/bin/hp-logs --follow train-1", "hp-logs", True),
        ("/opt/hpctools/bin/python /opt/hpctools/bin/hp-logs train-1 -f", "hp-logs", True),
        ("/opt/hpctools/bin/python /opt/hpctools/bin/hp-logs train-1", "hp-logs", False),
        ("/usr/bin/python3 /usr/bin/snakemake --cores 4", "snakemake", True),
        ("less job.sh", "less", False),
    ],
)
def test_who_waits_for_a_job_by_other_means_stays(title: str, name: str, is_spared: bool) -> None:
    rules = RULES.model_copy(update={"spared": ("snakemake",)})
    waiting = process(110, 102, 1001, title, name=name)
    (found,) = open_sessions([*connection(100, "nlp1", 1001, "pts/0"), waiting], BOOT)
    acts = course(dict.fromkeys([0.0, 3600.0, 4200.0], found), {}, rules)
    assert (acts == []) is is_spared


def test_who_presses_a_key_keeps_it_and_is_warned_anew() -> None:
    idle = session()
    moments = [0.0, 3600.0, 3660.0, 4200.0, 7249.0, 7250.0, 7850.0]
    acts = course(dict.fromkeys(moments, idle), {3660.0: 3650.0})
    assert acts == [(3600.0, "warn"), (7250.0, "warn"), (7850.0, "close")]


def test_a_session_in_which_something_runs_is_used() -> None:
    """A tenth of a processor from 1800 to 3000 s; a shell's few ticks are nothing."""
    busy = {0.0: session(), 1800.0: session(), 3000.0: session(ticks=120 * TICKS)}
    later = {6000.0: session(ticks=121 * TICKS), 6600.0: session(ticks=122 * TICKS)}
    assert course(busy | later, {}) == [(6600.0, "warn")]


def test_a_session_that_waits_for_a_job_is_used() -> None:
    """srun in the foreground takes nothing here, and would take the job with it."""
    waiting = process(110, 102, 1001, "srun ./train", name="srun")
    (holds,) = open_sessions([*connection(100, "nlp1", 1001, "pts/0"), waiting], BOOT)
    assert course({0.0: holds, 3600.0: holds, 7200.0: holds, 10_800.0: session()}, {}) == [(10_800.0, "warn")]


def test_a_tunnel_is_never_idle_and_tmux_only_where_the_site_says_so() -> None:
    moments = [0.0, 3600.0, 4200.0]
    assert course(dict.fromkeys(moments, session("notty")), {}) == []
    assert course(dict.fromkeys(moments, session(tmux=True)), {}) == []
    strict = RULES.model_copy(update={"spare_multiplexed": False})
    assert course(dict.fromkeys(moments, session(tmux=True)), {}, strict) == [
        (3600.0, "warn"),
        (4200.0, "close"),
    ]


def test_a_node_that_did_not_look_for_long_does_not_close_without_a_warning() -> None:
    assert course(dict.fromkeys([0.0, 90_000.0], session()), {}) == [(90_000.0, "warn")]


def test_the_words_of_a_warning() -> None:
    assert warning(session(), RULES) == (
        "Nothing has happened in your session on pts/0 for 1 hour. It will be closed in 10 minutes; press "
        "a key to keep it. What runs in tmux goes on."
    )
    short = RULES.model_copy(update={"after": 60, "warning": 30})
    assert "pts/0 for 1 minute. It will be closed in 30 seconds;" in warning(session(), short)
