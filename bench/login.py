"""Login nodes: what a day of many people does to them, how fast a place is found, what a login takes.

python -m bench.login [--only simulation|placement|logins|submit] [--quick] [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.login_logins import goals as login_goals
from bench.login_logins import logins as measured_logins
from bench.login_placement import placements
from bench.login_submit import MORE_ROUND_TRIPS, PARAMIKO_MORE, round_trips, start_seconds, submissions
from bench.report import Goal, report
from hpctools.errors import HpctoolsError
from hpctools.login.placement import Policy
from hpctools.login.simulation import (
    Chooser,
    Outcome,
    RoundRobin,
    least_connections,
    make_day,
    rendezvous,
    simulate,
    source_hash,
)

PLACEMENT_MS = 20.0
SIZES, QUICK_SIZES = (50, 20_000), (10, 2_000)
OURS = "rendezvous, bounded"

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class Part:
    """One part's rows and goals."""

    rows: Rows
    goals: tuple[Goal, ...] = ()


def simulation(quick: bool) -> Part:
    """A day of 50 nodes and 20,000 people, by each way of choosing."""
    day = make_day(*(QUICK_SIZES if quick else SIZES))
    ways: dict[str, Chooser] = {
        OURS: rendezvous(Policy()),
        "least connections": least_connections,
        "source hash": source_hash,
        "round robin": RoundRobin(),
    }
    found = [simulate(day, name, choose) for name, choose in ways.items()]
    return Part([_row(each) for each in found], _goals(found))


def _row(found: Outcome) -> dict[str, object]:
    return {
        "chooser": found.chooser,
        "logins": found.logins,
        "fullest above even (mean, p95)": "{:.0%}, {:.0%}".format(*found.sessions),
        "busiest CPU (mean, p95)": "{:.0%}, {:.0%}".format(*found.cpu),
        "back to own node": f"{found.returned:.1%}",
        "time on overloaded nodes": f"{found.overloaded:.2%}",
    }


def _goals(found: Sequence[Outcome]) -> tuple[Goal, ...]:
    """Nobody is to suffer more than by the best of the others, and people are to come back."""
    ours, *rivals = found
    best = min(each.overloaded for each in rivals)
    return (
        Goal("time on overloaded nodes", ours.overloaded * 100, "%", "<=", best * 100),
        Goal("back to own node", ours.returned * 100, "%", ">=", 99),
    )


def placement(quick: bool) -> Part:
    """Places at 200 requests a second."""
    found = placements(quick)
    rows = [asdict(each) for each in found]
    names = [each.name.partition(" (")[0] for each in found]
    goals = [
        Goal(f"{name}, p99", each.p99_ms, "ms", "<=", PLACEMENT_MS)
        for name, each in zip(names, found, strict=True)
    ]
    return Part(rows, tuple(goals))


def logins(quick: bool) -> Part:
    """200 people at once on four login nodes, beside plain sshds."""
    found = measured_logins(quick)
    return Part([asdict(each) for each in found.rows], login_goals(found))


def submit(quick: bool) -> Part:
    """Submissions from a laptop, beside ssh."""
    found = submissions(quick)
    goals = [
        Goal(f"more than ssh sbatch, {e.round_trip_ms} ms{how}", more, "s", "<=", e.allowed_s)
        for e in found
        for how, more in (
            ("", e.more_s),
            (", asking the service", e.asking_more_s),
            (", asking it over TLS 1.2", e.asking_tls12_more_s),
        )
    ]
    late = [Goal(f"answers that came too late, {e.round_trip_ms} ms", e.late, "", "<=", 0) for e in found]
    counted = round_trips()
    trips = [
        Goal(f"round trips more than ssh sbatch{how}", count - counted.ssh, "", "<=", MORE_ROUND_TRIPS)
        for how, count in (("", counted.ours), (", asking the service", counted.asking))
    ]
    started = Goal("start beyond paramiko's (CPU)", start_seconds(), "s", "<=", PARAMIKO_MORE)
    told = {f"round trips: {name}": count for name, count in asdict(counted).items()}
    return Part([{**asdict(each), **told} for each in found], (*goals, *late, *trips, started))


PARTS: dict[str, Callable[[bool], Part]] = {
    "simulation": simulation,
    "placement": placement,
    "logins": logins,
    "submit": submit,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for; each has a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="smaller and shorter")
    parser.add_argument("--check", action="store_true", help="a goal that is not met is a failure")
    asked = parser.parse_args(argv)
    codes = []
    for name in [asked.only] if asked.only else PARTS:
        try:
            part = PARTS[name](asked.quick)
        except HpctoolsError as error:
            print(f"bench: login {name}: {error}", file=sys.stderr)
            codes.append(error.exit_code)
            continue
        codes.append(report(f"login {name}", part.rows, part.goals, check=asked.check))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
