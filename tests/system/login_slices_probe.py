"""What runs on the kernel of `tests/system/uml.py`: the agent's own code limits a person, who is looked at.

Prints one JSON object: what the kernel was told at each stage, and what came of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from hpctools.login.agent.moving import Mover
from hpctools.login.agent.pausing import Pause
from hpctools.login.agent.processes import TICKS, Process, read_processes
from hpctools.login.agent.slices import CGROUPS, find_slices, held
from hpctools.login.care import Limits
from hpctools.site.login_care import Care

UID = 54321
SLICE = f"user-{UID}.slice"
MIB = 1 << 20
BURN = "while :; do :; done # burn"
HOARD = "head -c 200000000 /dev/zero | tail -n 1 >/dev/null"
HOME = Path("/run/theirs")
# A shell with eight megabytes of its own, which then takes 200 more and says what became of that.
TAKE = f"""\
own=$(head -c 8000000 /dev/zero | tr '\\0' a)
touch {HOME}/ready
read go <{HOME}/go
{HOARD}
echo $? >{HOME}/end
"""
SHELL = f"setpriv --reuid {UID} --regid {UID} --clear-groups sh {HOME}/take & exec sleep 1000"
FILES = ("cpu.max", "memory.high", "memory.max")


def theirs(mark: str) -> list[Process]:
    """A person's programs that have this at the end of their command line."""
    return [each for each in read_processes() if each.name == "sh" and each.title.endswith(mark)]


def used(process: Process) -> float:
    """Processors that a process uses, over a second and a half."""

    def ticks() -> int:
        return next(each.cpu_ticks for each in read_processes() if each.pid == process.pid)

    before, begin = ticks(), time.monotonic()
    time.sleep(1.5)
    return (ticks() - before) / TICKS / (time.monotonic() - begin)


def told(folder: Path) -> list[str]:
    """What the kernel has been told."""
    return [(folder / name).read_text().strip() for name in FILES]


def in_folders() -> dict[str, object]:
    """Without systemd: folders of cgroup v2 of the agent's own."""
    folder, slices = CGROUPS / f"hpctools-login/user-{UID}", find_slices()
    subprocess.Popen(["sh", "-c", BURN])
    (program,) = theirs(BURN)
    hoard = subprocess.Popen(["sh", "-c", f"read go; {HOARD}"], stdin=subprocess.PIPE)
    limited = Limits(0.1, 64 * MIB, 96 * MIB)
    slices.limit(UID, limited, [program, *theirs(HOARD)])
    found = {"slices": type(slices).__name__, "limited": told(folder), "used": used(program)}
    # Above what slows down a program takes minutes to get to what ends it.
    slices.limit(UID, Limits(memory_most=96 * MIB), [])
    hoard.communicate(b"\n")
    found["hoarder"] = hoard.returncode
    slices.limit(UID, Limits(), [program])
    return {**found, "lifted": told(folder), "used_then": used(program)}


def under_systemd() -> dict[str, object]:
    """user-UID.slice, beside the site's own limits of it."""
    folder, slices = CGROUPS / "user.slice" / SLICE, find_slices()
    program = begin("burn", BURN)
    found: dict[str, object] = {"slices": type(slices).__name__, "site": told(folder)}
    slices.limit(UID, Limits(0.1, 64 * MIB), ())
    found |= {"limited": told(folder), "used": used(program), "holds": held(UID)}
    (own,) = (each for each in read_processes() if each.pid == os.getpid())
    found["outside"] = [each.pid == own.pid for each in slices.outside(UID, [program, own])]
    call("systemctl", "daemon-reload")
    found["reloaded"] = told(folder)
    call("systemctl", "stop", "burn")
    begin("again", BURN)
    found["back"] = told(folder)
    slices.limit(UID, Limits(), ())
    return {**found, "lifted": told(folder), **moved()}


def moved() -> dict[str, object]:
    """A shell that a service started, without PAM, and that our own code puts where the limit holds."""
    HOME.mkdir()
    os.chown(HOME, UID, UID)
    os.mkfifo(HOME / "go")
    (HOME / "take").write_text(TAKE)
    call("systemctl", "start", "dbus.socket", "dbus.service")
    find_slices().limit(UID, Limits(memory_most=96 * MIB), ())
    call("systemd-run", "--collect", "--unit=amazon-ssm-agent", "/bin/sh", "-c", SHELL)
    wait_until((HOME / "ready").exists)
    (shell,) = theirs("/take")
    cgroup = Path(f"/proc/{shell.pid}/cgroup")
    before, mover = cgroup.read_text(), Mover(Care().services, lambda user: user == "root")
    mover.look(read_processes(), Pause("systemd", ""))
    wait_until(lambda: cgroup.read_text() != before)
    found = {"moved": [before, cgroup.read_text()], "brought": mover.brought([shell]), "has": held(UID)}
    call("systemctl", "stop", "amazon-ssm-agent")
    (HOME / "go").write_text("\n")
    wait_until(lambda: (HOME / "end").exists() and not scopes())
    return {**found, "ended": (HOME / "end").read_text(), "left": scopes()}


def scopes() -> str:
    """Those that were made for what was moved."""
    listed = ("systemctl", "list-units", "--all", "--plain", "--no-legend", "hpctools-login-*.scope")
    return subprocess.run(listed, check=True, capture_output=True, text=True).stdout


def wait_until(look: Callable[[], bool]) -> None:
    """Wait until something is so, for a minute at most."""
    end = time.monotonic() + 60
    while not look() and time.monotonic() < end:
        time.sleep(0.1)


def begin(unit: str, program: str) -> Process:
    """Begin a program of the person's."""
    call("systemd-run", "--collect", f"--unit={unit}", f"--slice={SLICE}", "/bin/sh", "-c", program)
    end = time.monotonic() + 20
    while not (found := theirs(program)) and time.monotonic() < end:
        time.sleep(0.1)
    return found[0]


def call(*argv: str) -> None:
    """Run a command."""
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def main(words: Iterable[str]) -> None:
    """Write what is found into a file."""
    how, file = words
    found = in_folders() if how == "folders" else under_systemd()
    Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
