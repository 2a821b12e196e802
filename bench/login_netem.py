"""`hp-submit --cluster` over delays that a kernel makes (`tc netem`), where this machine's kernel has none.

Debian's User Mode Linux is another kernel, with netem among its modules. Programs start several times slower
in it than here. So seconds are not held against a bound: what counts is by how much more a delay costs ours
than ssh. A program that waits for N round trips more than another takes N round trips longer with a delay
than it does without.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.login_submit import DELAYS_MS, QUICK_TIMES, TIMES, Submission
from tests.system.uml import KERNEL, boot  # type: ignore[import-untyped]

MODULES = Path("/usr/lib/uml/modules")
SECONDS = 1500.0
HERE = Path(__file__).resolve().parents[1]
_LOAD = "import ctypes, os, sys; sys.exit(ctypes.CDLL(None).syscall(313, os.open(sys.argv[1], 0), b'', 0))"
"""finit_module(2), which insmod of Debian's kmod would call."""
_SCRIPT = """\
mkdir -m 1777 /run/scratch; export TMPDIR=/run/scratch
ip link set lo up
export HOME=/root; cd {here}
{python} -c "{load}" {module} || halt -f
for delay in {delays}; do
  [ $delay = 0 ] || tc qdisc replace dev lo root netem delay $(({half} * delay))us || halt -f
  {python} -m bench.login_submit $delay {times} >>/run/hpctools/measured
done
halt -f
"""


@dataclass(frozen=True)
class Grown:
    """What a delay costs ours beyond what it costs ssh.

    Attributes:
        more_s, asking_more_s: how much longer ours takes than with no delay, less the same of ssh; the second
            when the service is asked first.
        allowed_s: three round trips.
    """

    round_trip_ms: int
    ssh_s: float
    ours_s: float
    more_s: float
    asking_more_s: float
    allowed_s: float


def grown(quick: bool) -> list[Grown]:
    """Measure each delay in that kernel."""
    times = QUICK_TIMES if quick else TIMES
    with tempfile.TemporaryDirectory() as folder:
        said = boot(Path(folder), _script(times), SECONDS, memory="1G")
        measured = Path(folder) / "measured"
        lines = measured.read_text().splitlines() if measured.exists() else []
    assert len(lines) == len(DELAYS_MS), said
    return compared([Submission(**json.loads(line)) for line in lines])


def _script(times: int) -> str:
    module = next(MODULES.glob("*/kernel/net/sched/sch_netem.ko"), None)
    if module is None or not KERNEL.exists():
        sys.exit("bench: there is no kernel with netem to boot: apt-get install user-mode-linux")
    delays = " ".join(map(str, DELAYS_MS))
    # Every packet leaves by the loopback device once: half a round trip is what it waits there.
    return _SCRIPT.format(
        here=HERE, python=sys.executable, load=_LOAD, module=module, delays=delays, half=500, times=times
    )


def compared(found: Sequence[Submission]) -> list[Grown]:
    """Each delay beside none, which is the first."""
    least = found[0]
    return [
        Grown(
            each.round_trip_ms,
            each.ssh_s,
            each.ours_s,
            round(each.more_s - least.more_s, 3),
            round(each.asking_more_s - least.asking_more_s, 3),
            3 * each.round_trip_ms / 1000,
        )
        for each in found
    ]
