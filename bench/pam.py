"""What our PAM stacks add to a login: alternating logins through real sshds, with ours and without.

    python -m bench.pam [--quick] [--check]     brings up a sandbox and measures in it

Others measure on a cluster of their own with `added`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench.report import Goal, report
from hpctools.sandbox import blueprint, ports
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.slurm.run import run, start

ADDED_SECONDS = 0.050
REPEATS, QUICK_REPEATS, WARM_UP = 100, 20, 3
SECONDS = 60.0
ROOT = Path(__file__).resolve().parent.parent
USER, NODE = "nlp1", "reserved-1"
SERVICES = {"plain": None, "compute": ("--role", "compute", "--node", NODE), "login": ("--role", "login")}
SETTINGS = {
    "access": {
        "administrators": {"users": ["nlp-head"]},
        "compute": {"slurmd_pid_file": "/run/slurm/slurmd-%n.pid"},
        "login": {"sessions_per_user": 50, "sessions": 500},
    }
}
SSHD_CONFIG = """\
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
"""
# In the sandbox's own mount namespace; the machine's PAM services stay as they are.
COVER = """\
set -eu
mkdir /var/spool/pam.d
cp -a /etc/pam.d/. /var/spool/pam.d
mount --bind /var/spool/pam.d /etc/pam.d
"""


def added(commands: Mapping[str, Sequence[str]], repeats: int) -> dict[str, list[float]]:
    """Measure logins.

    Args:
        commands: an ssh command line that logs in and out again, for each way; they take turns, so that the
            machine's other work falls on all alike.
        repeats: how many of each.

    Returns:
        Seconds of each login, by way.
    """
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for repeat in range(WARM_UP + repeats):
        for name, argv in commands.items():
            begin = time.perf_counter()
            run(argv, timeout=SECONDS)
            if repeat >= WARM_UP:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def p95(seconds: Sequence[float]) -> float:
    """The 95th percentile, in seconds."""
    return quantiles(seconds, n=20)[-1]


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(description="What PAM adds to a login.")
    parser.add_argument("--quick", dest="repeats", action="store_const", const=QUICK_REPEATS, default=REPEATS)
    parser.add_argument("--check", action="store_true", help="fail when a goal is not met")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpctools-bench-") as folder, _nodes(Path(folder)) as commands:
        seconds = added(commands, given.repeats)
    rows = [{"stack": n, "median ms": _ms(median(s)), "p95 ms": _ms(p95(s))} for n, s in seconds.items()]
    goals = [
        Goal(f"added to a login, {name}, p95", p95(values) - p95(seconds["plain"]), "s", "<=", ADDED_SECONDS)
        for name, values in seconds.items()
        if name != "plain"
    ]
    return report("pam", rows, goals, check=given.check)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


@contextmanager
def _nodes(folder: Path) -> Iterator[dict[str, list[str]]]:
    """A sandbox with a job and an sshd for each stack; the ssh command lines to them."""
    folder.chmod(0o755)  # the sandbox's daemons run under accounts of their own
    sandbox = Sandbox(folder / "sandbox")
    site = blueprint.example_site()
    if site is None:
        raise SystemExit("the reference site is not here: run this from a checkout")
    started = []
    try:
        up(sandbox, site, 2, lambda name, seconds: None)
        sandbox.inside("sh", "-c", COVER)
        (sandbox.layout.tree / "tmp/settings.json").write_text(json.dumps(SETTINGS))
        (sandbox.layout.tree / "etc/ssh/sshd_pam").write_text(SSHD_CONFIG)
        _job(sandbox)
        chosen = ports.choose(SERVICES)
        for name, words in SERVICES.items():
            started.append(start(_serve(sandbox, f"sshd-{name}", chosen[name], words)))
        yield {name: _login(sandbox, port) for name, port in chosen.items()}
    finally:
        for process in started:
            process.terminate()
        down(sandbox)


def _job(sandbox: Sandbox) -> None:
    where = ("-p", "nlp", "-A", "nlp-lab-a", "-w", NODE, "-n1", "--mem=1", "-o", "/dev/null")
    job = sandbox.inside("sbatch", "--parsable", *where, "--wrap", "sleep 3600", user=USER).stdout.strip()
    end = time.monotonic() + SECONDS
    find = f"cat /sys/fs/cgroup/freezer/slurm_*/uid_*/job_{job}/step_batch/cgroup.procs"
    while not sandbox.inside("sh", "-c", find, check=False).stdout.strip():
        if time.monotonic() > end:
            raise SystemExit(f"job {job} does not start")
        time.sleep(0.1)


def _serve(sandbox: Sandbox, service: str, port: int, words: Sequence[str] | None) -> list[str]:
    link = f"/usr/local/bin/{service}"
    sandbox.inside("sh", "-c", f"cp /etc/pam.d/sshd /etc/pam.d/{service} && ln -s /usr/sbin/sshd {link}")
    if words is not None:
        places = ["--library", "/var/spool/hpctools-pam", "--state", "/var/spool/hpctools-pam-state"]
        installer = [
            "/usr/bin/python3",
            str(ROOT / "pam/install.py"),
            "install",
            "--service",
            service,
            *words,
        ]
        sandbox.inside(*installer, *places, "--settings", "/tmp/settings.json", timeout=SECONDS)  # noqa: S108
    sshd = [link, "-D", "-f", "/etc/ssh/sshd_pam", "-p", str(port)]
    return sandbox.command(["unshare", "--uts", "sh", "-c", f'hostname {NODE} && exec "$@"', "sh", *sshd])


def _login(sandbox: Sandbox, port: int) -> list[str]:
    end = time.monotonic() + SECONDS
    while ports.is_free(port):
        if time.monotonic() > end:
            raise SystemExit(f"no sshd answers on port {port}")
        time.sleep(0.05)
    options = (
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "IdentitiesOnly=yes",
        "BatchMode=yes",
    )
    settings = [word for option in options for word in ("-o", option)]
    return [
        "ssh",
        "-F",
        "none",
        "-i",
        str(sandbox.layout.key),
        "-p",
        str(port),
        *settings,
        f"{USER}@127.0.0.1",
        "true",
    ]


if __name__ == "__main__":
    sys.exit(main())
