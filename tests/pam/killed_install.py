"""Kill the installer (SIGKILL) before each thing that it changes, from the same beginning each time.

`killed_install.py FOLDER VERB [arguments]`, where FOLDER/pam.d is this mount namespace's /etc/pam.d. What it
changes Python's audit hooks tell: files opened for writing, renamed, removed, made. Prints a list of what was
found after each kill: the text of the stack, files that it includes and that are not there, whether root gets
in; the last entry is that of the installer that was not killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

from pam import install, trial

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "shutil.rmtree"}
CHANGES |= {"tempfile.mkstemp", "tempfile.mkdtemp"}
PARTS = ("pam.d", "library", "state")
folder, words = Path(sys.argv[1]), sys.argv[2:]
before = folder / "before"


def kill_at(point: int) -> int:
    """Run the installer in a process of its own, to be killed at a point; how it ended."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    me, seen = os.getpid(), 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if (event in CHANGES or writes) and os.getpid() == me:
            seen += 1
            if seen == point:
                os.kill(me, signal.SIGKILL)

    # Each conversation with libpam takes longer than all the rest, and changes no file.
    # Guards let users step over what refuses, and administrators come to it.
    trial.attempt = lambda service, user, phase: trial.Answer(
        0 if (user == "root") is not service.endswith("-guard") else 6, ""
    )
    trial.loads = lambda module: ""
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    sys.addaudithook(hook)
    os._exit(install.main(words))


def restore() -> None:
    """Everything as it was at the beginning; /etc/pam.d is mounted, so that only what is in it changes."""
    for part in PARTS:
        for path in (folder / part).glob("*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if (before / part).is_dir():
            shutil.copytree(before / part, folder / part, dirs_exist_ok=True)
        elif part != "pam.d" and (folder / part).is_dir():
            (folder / part).rmdir()


def found() -> dict[str, object]:
    text = (folder / "pam.d/sshd").read_text()
    included = re.findall(r"^@include (\S+)", text, re.MULTILINE)
    included += re.findall(r"/[^\s\[]*/library/\w+/[\w-]+", text)
    missing = [name for name in included if not Path("/etc/pam.d", name).exists()]
    return {"text": text, "missing": missing, "root": trial.attempt("sshd", "root", "account").admitted}


for part in PARTS:
    if (folder / part).is_dir():
        shutil.copytree(folder / part, before / part)
seen: list[dict[str, object]] = []
killed = True
while killed:
    restore()
    status = kill_at(len(seen) + 1)
    killed = os.WIFSIGNALED(status)
    seen.append({**found(), "status": status})
print(json.dumps(seen))
