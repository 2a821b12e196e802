"""usage: session-limit CALLER PER_USER TOTAL FOLDER [HOOK | unix:SOCKET open|refuse]

PAM's account phase on a login node: counts sessions and refuses one too many. CALLER is the process that asks
PAM; a limit of 0 is none. Exit code 77: refused; all else lets in: a limit that fails must not lock a node.
When only the counting on this node fails (its lock is not had, /run is full), HOOK or SOCKET is asked all the
same.

A session is one connection: the process of sshd that serves it, whatever channels, tmux windows or `ssh -N`
it has. It is claimed, under a lock, by a file FOLDER/UID/PID-START. A claim counts as long as that very
process lives, so none outlives its session, however that ended. HOOK, when given, is asked next: `HOOK open
USER PID START`; its exit code 77 refuses too, with what it printed; any other, or silence for HOOK_SECONDS,
lets in. SOCKET is that of the node's agent, which is asked by a line of JSON; the last word says what becomes
of the login when the agent does not answer.

While the file LIFTED is there all limits are, the node's own and, without the agent's being asked, the
fleet's; the site's own HOOK is asked all the same.

Each login waits for it: `posix` is what os is made of, and takes no time to import (docs/decisions/0137).
"""

# ruff: noqa: PTH123 - pathlib takes longer to import than all of this

import fcntl
import posix
import pwd
import sys
import time

DENIED = 77
LOCK_SECONDS = 2.0
HOOK_SECONDS = 3
LIFTED = "/etc/hpctools/login-unlimited"
"""The break-glass file, which the node's agent looks at as well (`unlimited_file`)."""


def run() -> int:
    """`main`, whose own failures let in; words that the locale has no letters for are none."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        return main()
    except (OSError, LookupError, ValueError) as error:
        log(f"session limit does not work, and lets everybody in: {error!r}", error=True)
        return 0


def main() -> int:
    """Decide; the exit code."""
    caller, per_user, total = map(int, sys.argv[1:4])
    folder, (hook, otherwise) = sys.argv[4], (*sys.argv[5:], "", "")[:2]
    user = pwd.getpwnam(told_by_pam("PAM_USER"))
    pid = connection(caller)
    claim = f"{pid}-{started(pid)}"
    lifted = is_lifted()
    try:
        if not claimed(folder, user, claim, *((0, 0) if lifted else (per_user, total))):
            return DENIED
    except (OSError, ValueError) as error:
        log(f"sessions are not counted in {folder}, and it refuses nobody: {error!r}", error=True)
    if hook.startswith("unix:"):
        if lifted:
            return 0
        return ask_agent(hook[5:], user.pw_name, claim, otherwise == "refuse")
    return ask(hook, user.pw_name, claim) if hook else 0


def is_lifted() -> bool:
    """Whether an administrator has lifted all limits on this node."""
    try:
        posix.stat(LIFTED)
    except OSError:
        return False
    return True


def claimed(folder: str, user: pwd.struct_passwd, claim: str, per_user: int, total: int) -> bool:
    """Count and claim under the lock; False after the user was told why there is no room."""
    with Locked(folder):
        others = living(folder)
        mine = others.get(user.pw_uid, [])
        own = [c for c in mine if c != claim]
        if per_user and len(own) >= per_user:
            refuse_user(user.pw_name, own, per_user, folder, user.pw_uid)
            return False
        if total and sum(map(len, others.values())) >= total and claim not in mine:
            print(f"This node has all the {total} sessions that it may have: try another login node.")
            return False
        write_claim(folder, user.pw_uid, claim)
    return True


def connection(caller: int) -> int:
    """sshd's process for the whole connection; by keyboard-interactive PAM is called in a child of it.

    Its parent is the listener, which says so in its title, or another program (sshd-session's, systemd).
    """
    parent = int(stat(caller)[1])
    is_listener = listens(parent)
    same = posix.readlink(f"/proc/{parent}/exe") == posix.readlink(f"/proc/{caller}/exe")
    return parent if same and not is_listener else caller


def listens(pid: int) -> bool:
    """Whether a process says that it is the sshd that listens."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"[listener]" in file.read()


def stat(pid: int) -> "list[str]":
    """/proc/PID/stat from its third field on: state, parent, ..."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def started(pid: int) -> str:
    """When a process began, in clock ticks since boot; with its pid it names the process."""
    return stat(pid)[19]


def lives(claim: str) -> bool:
    """Whether the very process that a claim names is there."""
    pid, _, start = claim.partition("-")
    try:
        return started(int(pid)) == start
    except (OSError, ValueError, IndexError):
        return False


def told_by_pam(name: str, *otherwise: str) -> str:
    """A variable of the environment; KeyError when there is none and nothing stands for it."""
    key = name.encode()
    if otherwise and key not in posix.environ:
        return otherwise[0]
    return posix.environ[key].decode("utf-8", "surrogateescape")


def make(folder: str) -> None:
    """Make a folder that only root enters, and those above it; one that is there stays."""
    try:
        posix.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        make(folder.rpartition("/")[0] or "/")
        posix.mkdir(folder, 0o700)


def log(words: str, error: bool = False) -> None:
    """To syslog."""
    import syslog  # a library of its own, for what seldom happens

    syslog.syslog(syslog.LOG_ERR if error else syslog.LOG_WARNING, words)


class Locked:
    """The folder's lock, for at most LOCK_SECONDS of waiting."""

    def __init__(self, folder: str) -> None:
        make(folder)
        self.handle = posix.open(f"{folder}/lock", posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        limit = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        posix.close(self.handle)


def living(folder: str) -> "dict[int, list[str]]":
    """The claims of processes that live, by uid; the others are removed, and folders of who has none.

    Else each login would look into the folders of all who ever came, while the next ones wait for the lock.
    """
    found: dict[int, list[str]] = {}
    for uid in filter(str.isdigit, posix.listdir(folder)):
        for claim in posix.listdir(f"{folder}/{uid}"):
            if lives(claim):
                found.setdefault(int(uid), []).append(claim)
            else:
                posix.unlink(f"{folder}/{uid}/{claim}")
        if int(uid) not in found:
            posix.rmdir(f"{folder}/{uid}")
    return found


def write_claim(folder: str, uid: int, claim: str) -> None:
    """Remember a session, with what its owner is told of it."""
    make(f"{folder}/{uid}")
    words = f"{time.strftime('%a %H:%M')}\t{told_by_pam('PAM_RHOST', '')}\n"
    with open(f"{folder}/{uid}/{claim}", "w", encoding="utf-8", errors="replace") as file:
        file.write(words)


def refuse_user(user: str, claims: "list[str]", limit: int, folder: str, uid: int) -> None:
    """Tell the user of the sessions that there are."""
    print(f"{user}: you have {len(claims)} sessions on {posix.uname().nodename}, and the limit is {limit}:")
    for claim in sorted(claims):
        pid = int(claim.partition("-")[0])
        try:
            with open(f"{folder}/{uid}/{claim}", encoding="utf-8", errors="replace") as file:
                since, _, source = file.read().strip().partition("\t")
        except OSError:
            since = source = "?"
        way_out = f"to end it from another one: kill {own_process(pid, uid)}"
        print(f"  since {since} from {source or '?'}; {way_out}")


def own_process(monitor: int, uid: int) -> int:
    """The connection's process that runs as the user, whom the system lets end it."""
    try:
        with open(f"/proc/{monitor}/task/{monitor}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
        return next((pid for pid in children if posix.stat(f"/proc/{pid}").st_uid == uid), monitor)
    except OSError:
        return monitor


def ask(hook: str, user: str, claim: str) -> int:
    """What the site's own program says; the exit code."""
    import subprocess  # it takes as long to import as all the rest, and most sites have no hook

    try:
        done = subprocess.run(
            [hook, "open", user, *claim.split("-")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HOOK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log(f"session hook: {error}")
        return 0
    if done.returncode == DENIED:
        print(done.stdout.decode(errors="replace").strip() or "You may not open another session now.")
        return DENIED
    if done.returncode:
        log(f"session hook {hook}: exit code {done.returncode}")
    return 0


def ask_agent(path: str, user: str, claim: str, strict: bool) -> int:
    """What the node's agent says; the exit code.

    Args:
        strict: refuse when it does not answer.
    """
    # Of json only what it is made of: all of it takes longer to import than the answer takes.
    from _json import encode_basestring_ascii as quoted

    origin = "".join(char for char in told_by_pam("PAM_RHOST", "")[:255] if " " <= char <= "~")
    question = f'{{"ask": "lease", "user": {quoted(user)}, "claim": "{claim}", "origin": {quoted(origin)}}}\n'
    try:
        granted, message = understood(exchange(path, question.encode()))
    except (OSError, ValueError, LookupError, TypeError) as error:
        log(f"the agent at {path} does not answer: {error!r}")
        granted, message = not strict, "The agent of this node does not answer: try another login node."
    if not granted:
        print(message or "You may not open another session now.")
    return 0 if granted else DENIED


def understood(answer: bytes) -> "tuple[bool, str]":
    """Whether the session may begin, and what is said."""
    if answer.startswith(b'{"granted": true'):
        return True, ""
    import json

    found = json.loads(answer)
    return bool(found["granted"]), str(found["message"])


def exchange(path: str, line: bytes) -> bytes:
    """Send a line to a Unix socket; the line that is answered, within HOOK_SECONDS."""
    import _socket  # socket imports much that nobody needs here

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    limit = time.monotonic() + HOOK_SECONDS
    found = b""
    try:
        connection.settimeout(HOOK_SECONDS)
        connection.connect(path)
        connection.sendall(line)
        while not found.endswith(b"\n"):
            connection.settimeout(max(0.001, limit - time.monotonic()))
            part = connection.recv(65536)
            if not part:
                break
            found += part
    finally:
        connection.close()
    return found


if __name__ == "__main__":
    sys.exit(run())
