"""Install, check and remove: the one change that counts is the rename of the service's own file.

Copies and programs have names that tell their content, so that a new stack never changes what the present one
uses. A kill at any point leaves the old stack or the new one, each with all that it needs; the next run
removes the leavings.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

from pam import files, rewrite, selftest
from pam.order import Order, OrderError, Wanted, compose
from pam.selftest import Report, SelfTestError
from pam.stack import StackError

SSHD_SECONDS = 10


def install(order: Order) -> list[str]:
    """Put the order's rules into the service's stack; nothing happens when they are there.

    Returns:
        What was done, in lines.

    Raises:
        OrderError, StackError: it cannot be made here; nothing was changed.
        FileError: a file cannot be written; the stack is as it was.
        SelfTestError: the new stack does not do what it must; the stack is as it was.
    """
    with files.locked(order.at(order.state) / "lock"):
        sweep(order)
        wanted = compose(order)
        if not differences(order, wanted):
            return [f"{order.main}: nothing to do"]
        publish(order, wanted)
        report = selftest.run(order, wanted)
        if report.failures:
            sweep(order)
            raise SelfTestError(_failed(order, report, "nothing was changed"))
        _switch(order, wanted)
        sweep(order)
    return [*report.lines, f"{order.main}: {wanted.additions.about}"]


def publish(order: Order, wanted: Wanted) -> None:
    """Write what a stack needs beside its own file; whoever logs in meanwhile does not see it."""
    files.publish(order.at(wanted.programs_folder), wanted.programs)
    for name, text in wanted.copies.items():
        if not files.is_so(order.folder / name, text, 0o644):
            files.replace(order.folder / name, text)


def _switch(order: Order, wanted: Wanted) -> None:
    """Replace the stack, ask it about administrators, and put the former one back if it refuses one."""
    former = files.read(order.main)
    before = selftest.answers_to_administrators(order)
    files.replace(order.kept("previous" if rewrite.is_ours(former) else "original"), former, 0o600)
    files.replace(order.main, wanted.text)
    after = selftest.answers_to_administrators(order)
    report = Report()
    for user, answer in after.items():
        report.say(answer.admitted or not before[user].admitted, f"administrator {user}: {answer.said}")
    if report.failures:
        files.replace(order.main, former)
        raise SelfTestError(_failed(order, report, "the former stack was put back"))


def _failed(order: Order, report: Report, outcome: str) -> str:
    tried = "\n".join(f"  {'WRONG ' if line in report.failures else ''}{line}" for line in report.lines)
    return f"the new stack of {order.service} failed its self-test; {outcome}\n{tried}"


def self_test(order: Order) -> Report:
    """Try the stack that the order comes to, under throwaway names; the service's file is not touched.

    Raises:
        OrderError, StackError, FileError: it cannot be made here.
    """
    with files.locked(order.at(order.state) / "lock"):
        wanted = compose(order)
        publish(order, wanted)
        try:
            return selftest.run(order, wanted)
        finally:
            sweep(order)


def differences(order: Order, wanted: Wanted) -> list[str]:
    """What of an order is not in place."""
    found = [] if files.is_so(order.main, wanted.text) else [f"{order.main} is not as it should be"]
    found += [
        f"{order.folder / name} is not as it should be"
        for name, text in wanted.copies.items()
        if not files.is_so(order.folder / name, text, 0o644)
    ]
    folder = order.at(wanted.programs_folder)
    found += [
        f"{folder / name} is not as it should be"
        for name, text in wanted.programs.items()
        if not files.is_so(folder / name, text, 0o755)
    ]
    return found


def check(order: Order) -> tuple[list[str], list[str]]:
    """Whether all is in place and asked: problems, and what one should know."""
    try:
        found = differences(order, compose(order))
    except (OrderError, StackError) as error:
        return [str(error)], []
    asked = not order.root and order.role != "guard"
    problems, notes = sshd_asks_pam(Path("/usr/sbin") / order.service) if asked else ([], [])
    return [*found, *problems], [*selftest.administrators(order.settings)[1], *notes]


def sshd_asks_pam(program: Path) -> tuple[list[str], list[str]]:
    """What in sshd's settings makes PAM's word worthless, or one should know; nothing without sshd."""
    if not program.exists():
        return [], []
    argv = [str(program), "-T"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SSHD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], [f"{program} -T: {error}"]
    if done.returncode:
        return [], [f"{program} -T: {done.stderr.decode(errors='replace').strip()[-200:]}"]
    said = done.stdout.decode(errors="replace").lower().splitlines()
    problems = ["sshd does not ask PAM: set UsePAM yes in sshd_config"] * ("usepam yes" not in said)
    notes = [
        "keyboard-interactive logins cannot be adopted: compute nodes refuse them, except administrators'"
    ]
    return problems, notes * ("kbdinteractiveauthentication yes" in said)


def remove(order: Order) -> list[str]:
    """Take our rules out; what others changed meanwhile stays.

    Raises:
        FileError, StackError: it cannot be done; the stack is as it was.
    """
    with files.locked(order.at(order.state) / "lock"):
        try:
            text = files.read(order.main)
        except OSError as error:
            raise OrderError(f"{order.main} cannot be read: {error.strerror}") from None
        if not rewrite.is_ours(text):
            sweep(order)
            return [f"{order.main}: nothing of hpctools in it"]
        files.replace(order.kept("previous"), text, 0o600)
        files.replace(order.main, rewrite.strip(text, order.service))
        files.discard(order.kept("previous"))
        sweep(order)
    return [f"{order.main}: without hpctools again; the file as it was before is {order.kept('original')}"]


def sweep(order: Order) -> None:
    """Remove copies, programs, throwaway services and unfinished files that no stack uses.

    The stack before the present one counts too, since somebody may be logging in by it this instant; so do
    those of other services.
    """
    for pattern in (f"{selftest.TRIAL}{order.service}-*", f"{files.UNFINISHED}*"):
        for path in order.folder.glob(pattern):
            files.discard(path)
    while unused := [path for path in _copies(order) if not _is_used(order, path.name, path)]:
        for path in unused:
            files.discard(path)
    library = order.at(order.library)
    for folder in library.glob("*") if library.is_dir() else ():
        if not _is_used(order, f"{order.library}/{folder.name}/", folder):
            files.discard(folder)
    with contextlib.suppress(OSError):
        library.rmdir()


def _copies(order: Order) -> list[Path]:
    """The files that stacks of ours include, of whichever service."""
    name = re.compile(rf"{rewrite.PREFIX}.+-[0-9a-f]{{8}}")
    return [path for path in order.folder.iterdir() if name.fullmatch(path.name)]


def _is_used(order: Order, word: str, but: Path) -> bool:
    """Whether any file of PAM's, or a stack before the present one, names it."""
    kept = order.at(order.state).glob("*.previous")
    return any(word in _text(path) for path in (*order.folder.iterdir(), *kept) if path != but)


def _text(path: Path) -> str:
    try:
        return files.read(path)
    except OSError:
        return ""
