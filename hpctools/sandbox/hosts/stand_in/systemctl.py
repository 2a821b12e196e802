#!/usr/bin/python3 -IS
"""Stands in for systemctl where no systemd is: starts and stops services as their unit files say.

Installed as /usr/bin/systemctl on the machines of hpctools.sandbox.hosts. It reads the same units and
drop-ins from the same folders, and knows of the directives only those that the services there need.
"""

import fcntl
import os
import pwd
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

FOLDERS = [Path(p) for p in ("/etc/systemd/system", "/run/systemd/system", "/lib/systemd/system")]
RUN = Path("/run/stand-in")
LOGS = Path("/var/log/services")
ALIASES = {"sshd": "ssh", "mysql": "mariadb", "mysqld": "mariadb"}
START_SECONDS, STOP_SECONDS = 60, 20
ENABLED = Path("/etc/systemd/system/multi-user.target.wants")


CONDITIONS: dict[str, Callable[[Path], bool]] = {
    "ConditionPathExists": Path.exists,
    "ConditionPathIsDirectory": Path.is_dir,
    "ConditionDirectoryNotEmpty": lambda path: any(path.glob("*")),
}


class Failure(Exception):
    """A unit that cannot do what was asked."""


class Unit:
    """A service, as its unit file and drop-ins say."""

    def __init__(self, name: str) -> None:
        self.name = ALIASES.get(name, name)
        main = next(
            (f / f"{self.name}.service" for f in FOLDERS if (f / f"{self.name}.service").exists()), None
        )
        self.known = main is not None
        parts = [main] if main else []
        for folder in reversed(FOLDERS):
            parts += sorted((folder / f"{self.name}.service.d").glob("*.conf"))
        self.keys: dict[str, list[str]] = {}
        for part in parts:
            self._read(part.read_text())
        self.note = RUN / f"{self.name}.pid"

    def _read(self, text: str) -> None:
        for line in text.replace("\\\n", " ").splitlines():
            key, equals, value = line.strip().partition("=")
            if not equals or line.lstrip().startswith(("#", ";")):
                continue
            values = self.keys.setdefault(key.strip(), [])
            if value.strip():
                values.append(value.strip())
            else:
                values.clear()

    def get(self, key: str, default: str = "") -> str:
        """The last value of a key."""
        values = self.keys.get(key)
        return values[-1] if values else default

    def main_pid(self) -> int | None:
        """Its main process; None when it does not run."""
        try:
            pid, start = self.note.read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if started(int(pid)) == start else None

    def condition(self) -> bool:
        """Whether the conditions of its unit file hold: all of them, and one of those with a bar."""
        alternatives = []
        for key, holds in CONDITIONS.items():
            for value in self.keys.get(key, []):
                met = holds(Path(value.lstrip("|!"))) != ("!" in value[:2])
                if value.startswith("|"):
                    alternatives.append(met)
                elif not met:
                    return False
        return not alternatives or any(alternatives)

    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        values = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
        for line in self.keys.get("Environment", []):
            values.update(word.partition("=")[::2] for word in shlex.split(line))
        for line in self.keys.get("EnvironmentFile", []):
            path = Path(line.lstrip("-"))
            if not path.exists() and not line.startswith("-"):
                raise Failure(f"no {path}")
            if path.exists():
                for each in path.read_text().splitlines():
                    name, equals, value = each.strip().partition("=")
                    if equals and not name.startswith("#"):
                        values[name] = " ".join(shlex.split(value))
        return values


def started(pid: int) -> str | None:
    """Clock ticks at which a process started, as text; None for none or its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def words(line: str, environment: dict[str, str]) -> list[str]:
    """The arguments of an Exec line: $NAME becomes words, ${NAME} part of one (systemd.service(5))."""
    result = []
    for word in shlex.split(line):
        if word.startswith("$") and not word.startswith("${") and word[1:].isidentifier():
            result += environment.get(word[1:], "").split()
            continue
        for name, value in environment.items():
            word = word.replace("${" + name + "}", value)
        result.append(word)
    return result


def spawn(unit: Unit, argv: list[str], environment: dict[str, str]) -> int:
    """Start a program as the unit's account, detached; its pid in our namespace."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        child = os.fork()
        if child:
            os.write(writer, str(child).encode())
            os._exit(0)
        LOGS.mkdir(parents=True, exist_ok=True)
        log = os.open(LOGS / f"{unit.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        try:
            become(unit.get("User"))
            os.umask(int(unit.get("UMask", "0022"), 8))
            os.execvpe(argv[0], argv, environment)  # noqa: S606
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            os._exit(203)
    os.close(writer)
    os.wait()
    with os.fdopen(reader, "rb") as file:
        return int(file.read())


def become(name: str) -> None:
    """Take on a Unix account, for good."""
    if name:
        entry = pwd.getpwnam(name)
        os.initgroups(name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def wait_for(look: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """Until `look()` gives something."""
    limit = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > limit:
            raise Failure(f"{what} within {seconds} s")
        time.sleep(0.01)


def run_line(line: str, environment: dict[str, str]) -> None:
    """Run a command line of the unit to its end; a dash before it means that failure is fine."""
    argv = words(line.lstrip("-+!@"), environment)
    status = os.spawnvpe(os.P_WAIT, argv[0], argv, environment)  # noqa: S606
    if status and not line.startswith("-"):
        raise Failure(f"{line} failed with {status}")


def _prepare(unit: Unit, environment: dict[str, str]) -> None:
    owner = pwd.getpwnam(unit.get("User", "root"))
    for key, above in (("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib")):
        for name in unit.get(key).split():
            path = Path(above, name)
            path.mkdir(exist_ok=True)
            path.chmod(int(unit.get(f"{key}Mode", "0755"), 8))
            os.chown(path, owner.pw_uid, owner.pw_gid)
    for line in unit.keys.get("ExecStartPre", []):
        run_line(line, environment)


def start(unit: Unit) -> None:
    """Start it as its unit file says; done already when it runs."""
    if not unit.known:
        raise Failure(f"Unit {unit.name}.service not found.")
    if unit.main_pid() or not unit.condition():
        return
    environment = unit.environment()
    _prepare(unit, environment)
    kind = unit.get("Type", "simple")
    argv = words(unit.get("ExecStart").lstrip("-+!@"), environment)
    if kind == "oneshot":
        run_line(unit.get("ExecStart"), environment)
        return
    told = listen(environment, unit) if kind == "notify" else None
    pid = spawn(unit, argv, environment)
    if kind == "forking":
        wait_for(lambda: started(pid) is None, START_SECONDS, f"{argv[0]} did not go to the background")
        pid = wait_for(lambda: written(unit.get("PIDFile")), 5, f"{argv[0]} wrote no {unit.get('PIDFile')}")
    elif told is not None:
        await_ready(told, pid, unit)
    else:
        time.sleep(0.02)
    ticks = started(pid)
    if ticks is None:
        raise Failure(f"Job for {unit.name}.service failed; see {LOGS / unit.name}.log")
    unit.note.write_text(f"{pid} {ticks}")


def written(path: str) -> int | None:
    """The living process that a pid file tells of."""
    try:
        pid = int(Path(path).read_text())
    except (OSError, ValueError):
        return None
    return pid if started(pid) else None


def listen(environment: dict[str, str], unit: Unit) -> socket.socket:
    """A socket on which the service says that it is ready (sd_notify(3))."""
    path = RUN / f"{unit.name}.notify"
    path.unlink(missing_ok=True)
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(path))
    path.chmod(0o666)
    environment["NOTIFY_SOCKET"] = str(path)
    return told


def await_ready(told: socket.socket, pid: int, unit: Unit) -> None:
    """Until the service has said so, or has ended."""
    told.settimeout(0.1)
    limit = time.monotonic() + START_SECONDS
    while time.monotonic() < limit:
        try:
            if b"READY=1" in told.recv(4096).split(b"\n"):
                return
        except TimeoutError:
            if started(pid) is None:
                raise Failure(f"Job for {unit.name}.service failed; see {LOGS / unit.name}.log") from None
    os.kill(pid, signal.SIGKILL)
    raise Failure(f"{unit.name}.service was not ready within {START_SECONDS} s")


def stop(unit: Unit) -> None:
    """End its main process."""
    pid = unit.main_pid()
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    try:
        wait_for(lambda: started(pid) is None, STOP_SECONDS, "")
    except Failure:
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: started(pid) is None, STOP_SECONDS, f"{unit.name}.service does not end")
    unit.note.unlink(missing_ok=True)


def restart(unit: Unit) -> None:
    """Stop and start."""
    stop(unit)
    start(unit)


def reload(unit: Unit) -> None:
    """Have it read its configuration again."""
    pid = unit.main_pid()
    if pid is None:
        raise Failure(f"{unit.name}.service is not active, cannot reload.")
    environment = {**unit.environment(), "MAINPID": str(pid)}
    for line in unit.keys.get("ExecReload", []):
        run_line(line.replace("$MAINPID", str(pid)), environment)


def enable(unit: Unit) -> None:
    """Note that it starts at boot."""
    if not unit.known:
        raise Failure(f"Failed to enable unit: Unit file {unit.name}.service does not exist.")
    ENABLED.mkdir(parents=True, exist_ok=True)
    (ENABLED / f"{unit.name}.service").touch()


def disable(unit: Unit) -> None:
    """Note that it does not start at boot."""
    (ENABLED / f"{unit.name}.service").unlink(missing_ok=True)


ACTIONS: dict[str, Callable[[Unit], object]] = {
    "start": start,
    "stop": stop,
    "restart": restart,
    "reload": reload,
    "enable": enable,
    "disable": disable,
    "try-restart": lambda unit: restart(unit) if unit.main_pid() else None,
    "reload-or-restart": lambda unit: (
        reload(unit) if unit.main_pid() and unit.keys.get("ExecReload") else restart(unit)
    ),
    "reset-failed": lambda unit: None,
    "unmask": lambda unit: None,
    "mask": stop,
}


def main() -> int:
    """Entry: systemctl's own words."""
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    given = [word for word in sys.argv[1:] if not word.startswith("-")]
    verb, names = (given[0], given[1:]) if given else ("", [])
    RUN.mkdir(parents=True, exist_ok=True)
    units = [Unit(name.removesuffix(".service")) for name in names]
    quiet = "-q" in options or "--quiet" in options
    if verb in ("daemon-reload", "is-system-running"):
        return 0
    if verb in ("is-active", "is-enabled", "status", "cat"):
        return ask(verb, units, quiet)
    if verb == "show":
        for unit in units:
            print(
                f"MainPID={unit.main_pid() or 0}\nActiveState={'active' if unit.main_pid() else 'inactive'}"
            )
        return 0
    if verb not in ACTIONS or not units:
        print(f"Unknown command verb {verb!r}.", file=sys.stderr)
        return 1
    return act(verb, units, "--now" in options)


def ask(verb: str, units: list[Unit], quiet: bool) -> int:
    """Answer a question; the exit status is systemctl's."""
    good = False
    for unit in units:
        if verb == "cat":
            holds, word = unit.known, str(unit.keys)
        elif verb == "is-enabled":
            holds = (ENABLED / f"{unit.name}.service").exists()
            word = "enabled" if holds else "disabled" if unit.known else "not-found"
        else:
            holds = unit.main_pid() is not None
            word = "active" if holds else "inactive"
        good = good or holds
        if not quiet:
            print(word)
    missing = all(not unit.known for unit in units)
    return 0 if good else 1 if verb in ("is-enabled", "cat") else 4 if missing and verb == "status" else 3


def act(verb: str, units: list[Unit], now: bool) -> int:
    """Do something with each unit, one command at a time; it goes on whatever becomes of us."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reader)
        null = os.open("/dev/null", os.O_RDWR)
        for source, target in ((null, 0), (null, 1), (writer, 2)):
            os.dup2(source, target)
        os._exit(max([one(verb, unit, now) for unit in units]))
    os.close(writer)
    with os.fdopen(reader, errors="replace") as said:
        sys.stderr.write(said.read())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def one(verb: str, unit: Unit, now: bool) -> int:
    """Do something with one unit."""
    with (RUN / f"{unit.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            ACTIONS[verb](unit)
            if now:
                ACTIONS[{"enable": "start", "disable": "stop"}.get(verb, "unmask")](unit)
        except (Failure, OSError, KeyError) as error:
            os.write(2, f"{error}\n".encode())
            return 5 if not unit.known else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
