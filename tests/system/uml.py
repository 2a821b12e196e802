"""Another kernel on this machine: User Mode Linux, a program of Debian's, with cgroup v2 and its controllers.

It boots on this machine's own files, which it cannot change, in a second or two.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

KERNEL = Path("/usr/bin/linux.uml")
_FIRST = """\
#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /run
mkdir /run/hpctools && mount -t hostfs -o {folder} hostfs /run/hpctools
mount -t cgroup2 cgroup2 /sys/fs/cgroup
"""


def boot(folder: Path, script: str, limit: float = 200) -> str:
    """Boot it, with a shell script as its first process that ends with `halt -f`; what it said.

    Args:
        folder: a test's own; it is /run/hpctools in there, and can be written to.
        limit: seconds after which it is killed, and the test fails.
    """
    if not KERNEL.exists():
        pytest.skip(f"{KERNEL} is not there: ./dev installs it where Debian has it (amd64)")
    init = folder / "init"
    init.write_text(_FIRST.format(folder=folder) + script)
    init.chmod(0o755)
    words = [
        f"init={init}",
        "mem=256M",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        f"uml_dir={folder}",
    ]
    argv = [str(KERNEL), *words, "con=null", "con0=null,fd:1", "con1=null,fd:1"]
    with (folder / "console").open("wb") as console:
        kernel = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
        )
        try:
            kernel.wait(limit)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not halted after {limit} s:\n{_said(folder)}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(kernel.pid, signal.SIGKILL)
            kernel.wait(20)
    return _said(folder)


def _said(folder: Path) -> str:
    return (folder / "console").read_text(errors="replace")[-3000:]
