"""A cluster for a laptop: real sshds for people of other uids, and a Slurm of shell scripts that counts jobs.

The sshd and what it starts live in a mount namespace with a passwd and homes of their own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEOPLE = {"lab1": (41001, "/bin/bash"), "lab2": (41002, "/bin/dash")}
Here = Callable[..., tuple[int, str, str]]
"""hp-submit on the laptop: words; exit code, output, standard error."""
COMMAND = f"{sys.executable} -m hpctools.cli.hp_submit"
SSHD_CONFIG = """\
ListenAddress 127.0.0.1
HostKey {folder}/etc/host_key
{certificate}
AuthorizedKeysFile {folder}/etc/authorized_keys
StrictModes no
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
MaxStartups 300
MaxAuthTries 6
LogLevel VERBOSE
SetEnv PATH={folder}/bin:/usr/bin:/bin PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1 JOBS={folder}/jobs {more}
"""
# Takes a number by making a folder, keeps the words as they came, and runs the script when told to.
SBATCH = """\
#!/bin/bash
[ -e "$JOBS/refuse" ] && { cat "$JOBS/refuse" >&2; exit 1; }
n=1; until mkdir "$JOBS/$n" 2>/dev/null; do n=$((n + 1)); done
printf '%s\\0' "$@" >"$JOBS/$n/words"; pwd >"$JOBS/$n/cwd"; echo "$PATH" >"$JOBS/$n/path"
for word in "$@"; do
  case $word in */hp-runs/*/*) printf '%s %s\\n' "$n" "$word" >"$JOBS/$n/line"; script=$word; break ;; esac
  shift
done
shift
if [ -e "$JOBS/lose" ]; then
  rm "$JOBS/lose"; echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1
fi
if [ -e "$JOBS/run" ]; then
  bash "$script" "$@" >"slurm-$n.out" 2>&1
  state=$(cat "$JOBS/run"); echo "${state:-COMPLETED}" >"$JOBS/$n/state"
fi
echo "$n"
"""
SQUEUE = """\
#!/bin/bash
case "$*" in
  *%T*) asked=${*: -1}; asked=${asked#--jobs=}
    if [[ $asked != *,* && ! -e "$JOBS/$asked" ]]; then
      echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1
    fi
    for n in ${asked//,/ }; do
      [ -e "$JOBS/$n" ] && echo "$n $(cat "$JOBS/$n/state" 2>/dev/null || echo PENDING)"
    done; true ;;
  *) cat "$JOBS"/*/line 2>/dev/null || true ;;
esac
"""
SCONTROL = """\
#!/bin/bash
[ "$*" = "show config" ] && { echo "MinJobAge               = 300 sec"; exit; }
[ -e "$JOBS/slow" ] && sleep 0.7
n=${*: -1}
echo "JobId=$n JobName=x"; echo "   JobState=RUNNING Reason=None"
echo "   StdOut=$(cat "$JOBS/$n/cwd")/slurm-$n.out"
"""
SACCT = "#!/bin/sh\nexit 1\n"
SCANCEL = '#!/bin/bash\nfor n in "$@"; do [ -d "$JOBS/$n" ] && echo CANCELLED >"$JOBS/$n/state"; done; true\n'
PROGRAMS = {"sbatch": SBATCH, "squeue": SQUEUE, "scontrol": SCONTROL, "sacct": SACCT, "scancel": SCANCEL}


@dataclass
class Login:
    """A login node.

    Attributes:
        port: of its sshd.
    """

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        """End it, with the sessions on it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@dataclass
class Rig:
    """A cluster, and the laptop from which it is reached.

    Attributes:
        home: the laptop's.
    """

    folder: Path
    logins: list[Login] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "laptop"

    @property
    def jobs(self) -> list[Path]:
        """What Slurm has, in order."""
        found = [each for each in (self.folder / "jobs").iterdir() if each.name.isdecimal()]
        return sorted(found, key=lambda each: int(each.name))

    def words(self, job: Path) -> list[str]:
        """What sbatch was given."""
        # Not as text: Python would read a carriage return as a line break.
        return (job / "words").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]

    def clear(self) -> None:
        """Forget all jobs."""
        for job in self.jobs:
            subprocess.run(["rm", "-r", str(job)], check=True)

    def on_cluster(self, user: str) -> Path:
        """A person's home on the cluster."""
        return self.folder / "home" / user

    @property
    def environment(self) -> dict[str, str]:
        """The laptop's: no Slurm on its PATH."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
        kept |= {"HOME": str(self.home), "HPCTOOLS_SSH_CONFIG": str(self.home / ".ssh/config")}
        kept.pop("SSH_AUTH_SOCK", None)
        return {**kept, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}

    def run(
        self, program: str, *words: str, stdin: str = "", cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """A command on the laptop."""
        module = f"hpctools.cli.{program.replace('-', '_')}"
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            input=stdin,
            text=True,
            errors="surrogateescape",
            capture_output=True,
            timeout=100,
            cwd=cwd or self.home,
            env={**self.environment, **env},
            check=False,
        )

    def configure(self, ports: dict[str, int], user: str = "lab1", more: str = "") -> None:
        """Write ssh's configuration and clusters.yaml: login nodes by name, in order."""
        hosts = "".join(f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n" for name, port in ports.items())
        ssh = self.home / ".ssh"
        common = f"Host *\n  User {user}\n  IdentityFile {ssh}/key\n  UserKnownHostsFile {ssh}/known_hosts\n"
        common += "  GlobalKnownHostsFile none\n"
        (ssh / "config").write_text(more + hosts + common)
        config = self.home / ".config/hpctools"
        config.mkdir(parents=True, exist_ok=True)
        nodes = ", ".join(ports)
        (config / "clusters.yaml").write_text(
            f"clusters:\n  uni:\n    login_nodes: [{nodes}]\n    command: {COMMAND}\ndefault: uni\n"
        )

    def know(self, *ports: int) -> None:
        """Write the sshds' host key into known_hosts."""
        key = " ".join((self.folder / "etc/host_key.pub").read_text().split()[:2])
        lines = "".join(f"[127.0.0.1]:{port} {key}\n" for port in ports)
        (self.home / ".ssh/known_hosts").write_text(lines)

    def start(
        self,
        name: str,
        certificate: str = "",
        more: str = "",
        settings: Mapping[str, str] | None = None,
        pam: str = "",
        opt: Path | None = None,
    ) -> Login:
        """Start a login node.

        Args:
            more: variables for what sshd starts.
            settings: of sshd, in the place of its usual ones.
            pam: its PAM service; without one PAM is not asked.
            opt: what its /opt has besides this machine's.
        """
        config = self.folder / f"etc/sshd_{name}"
        stated = {**(settings or {}), **({"UsePAM": "yes"} if pam else {})}
        usual = SSHD_CONFIG.format(folder=self.folder, root=ROOT, certificate=certificate, more=more)
        kept = [line for line in usual.splitlines() if line.partition(" ")[0] not in stated]
        config.write_text("\n".join([*kept, *(f"{key} {value}" for key, value in stated.items())]) + "\n")
        service = self.folder / f"etc/pam_{name}"
        service.write_text(pam)
        cover = f"mount --bind {service} /etc/pam.d/sshd && " if pam else ""
        if opt:
            cover += f"mount -t overlay -o lowerdir={opt}:/opt overlay /opt && "
        port = free_port()
        log = self.folder / f"{name}.log"
        script = (
            f"mount --make-rprivate / && mount --bind {self.folder}/etc/passwd /etc/passwd && "
            f"mount --bind {self.folder}/etc/shadow /etc/shadow && mkdir -p /run/sshd && "
            f"mount --bind {self.folder}/home /home && "
            f"{cover}exec /usr/sbin/sshd -D -e -p {port} -f {config}"
        )
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["unshare", "--mount", "--", "sh", "-c", script],
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        wait_for_port(port, process, log)
        login = Login(name, port, process, log)
        self.logins.append(login)
        return login


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, limit: float = 30) -> None:
    end = time.monotonic() + limit
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)


def keygen(path: Path, *words: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", str(path), *(words or ("-t", "ed25519"))], check=True)


@contextmanager
def rig() -> Iterator[Rig]:
    """A cluster without login nodes yet; all that it started ends with the block."""
    with tempfile.TemporaryDirectory(prefix="rig-") as top:
        # pytest's own folders are closed to other people, and closed again by each pytest.
        Path(top).chmod(0o711)
        made = _furnished(Path(top))
        try:
            yield made
        finally:
            for login in made.logins:
                if login.process.poll() is None:
                    login.stop()


def _furnished(folder: Path) -> Rig:
    for name in ("etc", "bin", "home", "jobs", "laptop/.ssh"):
        (folder / name).mkdir(parents=True)
    (folder / "jobs").chmod(0o1777)
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    passwd, shadow = Path("/etc/passwd").read_text(), Path("/etc/shadow").read_text()
    for name, (uid, shell) in PEOPLE.items():
        home = folder / "home" / name
        home.mkdir()
        os.chown(home, uid, uid)
        passwd += f"{name}:x:{uid}:{uid}::/home/{name}:{shell}\n"
        shadow += f"{name}:*:19000:0:99999:7:::\n"
    (folder / "etc/passwd").write_text(passwd)
    (folder / "etc/shadow").write_text(shadow)
    keygen(folder / "etc/host_key")
    keygen(folder / "laptop/.ssh/key")
    (folder / "etc/authorized_keys").write_text((folder / "laptop/.ssh/key.pub").read_text())
    (folder / "etc/authorized_keys").chmod(0o644)
    return Rig(folder)
