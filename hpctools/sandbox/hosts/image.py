"""What a machine has before the lifecycle scripts run: HyperPod's image, the agent's files, the bundle."""

from __future__ import annotations

import shutil
from pathlib import Path

from hpctools.sandbox.hosts import agent
from hpctools.sandbox.hosts.machine import Host
from hpctools.sandbox.hosts.plan import Fleet

STAND_INS = Path(__file__).with_name("stand_in")
# Where HyperPod copies what was uploaded: /tmp/<bucket>/<prefix>.
BUNDLE = "/tmp/sagemaker-lifecycle/uni-gpu"  # noqa: S108
RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
ADMINISTRATOR = "ubuntu"
# No condition on /etc/slurm/slurm.conf, which configless nodes lack.
UNIT = """\
[Unit]
Description=Slurm {name}
[Service]
Type=simple
EnvironmentFile=-/etc/default/{name}
ExecStart=/opt/slurm/sbin/{name} -D -s ${option}_OPTIONS
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
[Install]
WantedBy=multi-user.target
"""
# One key for every account; a host key of one kind, since making RSA keys takes long.
SSHD = """\
AuthorizedKeysFile /etc/ssh/authorized_key .ssh/authorized_keys
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
UseDNS no
MaxStartups 200:30:400
"""
# What Debian's packages make on a machine, and what the network's name service would know.
# There is no resolver, which shows at once; Slurm's commands without slurm.conf look for it in the DNS.
RESOLVER = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
BASE = """\
set -eu
hostname "$1"
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
install -d -o slurm -g slurm /var/log/slurm /var/spool/slurmctld
install -d /var/spool/slurmd
install -d -m 0700 -o munge -g munge /var/log/munge /var/lib/munge /etc/munge
install -d -o mysql -g mysql /var/log/mysql
if [ "$2" = controller ]; then
  mysql_install=/usr/bin/mariadb-install-db
  $mysql_install --user=mysql --skip-test-db --auth-root-authentication-method=socket >/dev/null
fi
useradd --create-home --shell /bin/bash --uid 990 "$3"
systemctl start ssh
"""
HYPERPOD = """\
set -eu
chown munge:munge /etc/munge/munge.key
chmod 0400 /etc/munge/munge.key
ln -sfn "$1" /opt/slurm/etc
ln -sfn /usr/bin /opt/slurm/bin
ln -sfn /usr/sbin /opt/slurm/sbin
rm -rf /etc/slurm
ln -sfn /opt/slurm/etc /etc/slurm
systemctl start munge
"""


def install(host: Host, fleet: Fleet) -> None:
    """Make a machine that has just booted an empty node: an operating system with its packages, and sshd.

    On HyperPod there are also what its image and its agent bring, munged among them.

    Raises:
        CommandError: something cannot be installed.
    """
    hyperpod = fleet.provider == "hyperpod"
    _lay(host, {**_base(host, fleet), **(_hyperpod(host, fleet) if hyperpod else {})})
    machine = host.machine
    host.run(["sh", "-c", BASE, "base", machine.hostname, machine.role, ADMINISTRATOR])
    if hyperpod:
        host.run(["sh", "-c", HYPERPOD, "hyperpod", agent.VERSIONED])


def _lay(host: Host, files: dict[str, tuple[str, int]]) -> None:
    folder = host.rack.folder / f"image-{host.machine.name}"
    shutil.rmtree(folder, ignore_errors=True)
    for path, (text, mode) in files.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
    host.copy(folder, "/")


def deliver(host: Host, bundle: Path) -> None:
    """Put a lifecycle bundle where HyperPod copies it, in place of one that is there."""
    host.run(["rm", "-rf", BUNDLE])
    host.copy(bundle, BUNDLE)


def _base(host: Host, fleet: Fleet) -> dict[str, tuple[str, int]]:
    """Text and mode of each file that every machine has, by path."""
    files = {
        "/etc/hostname": (f"{host.machine.hostname}\n", 0o644),
        "/etc/hosts": (_names(fleet), 0o644),
        "/etc/resolv.conf": (RESOLVER, 0o644),
        "/etc/ssh/authorized_key": (host.rack.key.with_suffix(".pub").read_text(), 0o644),
        "/etc/ssh/sshd_config.d/image.conf": (SSHD, 0o644),
        "/usr/bin/systemctl": ((STAND_INS / "systemctl.py").read_text(), 0o755),
    }
    for name in ("lustre", "nfs"):
        files[f"/usr/sbin/mount.{name}"] = ((STAND_INS / "mount.sh").read_text(), 0o755)
    return files


def _hyperpod(host: Host, fleet: Fleet) -> dict[str, tuple[str, int]]:
    """The same for what HyperPod brings."""
    files = {
        RESOURCE_CONFIG: (agent.resource_config(fleet), 0o644),
        f"{agent.VERSIONED}/.agent": ("", 0o644),
        "/etc/munge/munge.key": (_munge_key(host.rack.folder), 0o400),
    }
    for name, option in (("slurmctld", "SLURMCTLD"), ("slurmd", "SLURMD"), ("slurmdbd", "SLURMDBD")):
        files[f"/etc/systemd/system/{name}.service"] = (UNIT.format(name=name, option=option), 0o644)
    return files


def _munge_key(folder: Path) -> str:
    """The cluster's key, which HyperPod distributes; text of the length that munged asks for."""
    return (folder / "munge.key").read_text()


def _names(fleet: Fleet) -> str:
    """Names of all machines, which the VPC's resolver would know."""
    lines = [f"{machine.address} {machine.hostname} {machine.name}" for machine in fleet.machines]
    return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"


def know_names(host: Host, fleet: Fleet) -> None:
    """Let a machine know the names of all, which the VPC's resolver would tell it."""
    host.write("/etc/hosts", _names(fleet))


def write_slurm_conf(controller: Host, fleet: Fleet, kept: str = "") -> None:
    """Write what HyperPod's agent owns of Slurm's configuration, some time after a controller came.

    It writes which nodes there are first.

    Args:
        controller: where.
        fleet: the machines.
        kept: lines of others that it leaves at the end of slurm.conf; all else of others is lost.
    """
    controller.write(RESOURCE_CONFIG, agent.resource_config(fleet))
    texts = {"gres.conf": agent.gres_conf(fleet), "slurm.conf": agent.slurm_conf(fleet) + kept}
    for name, text in texts.items():
        controller.write(f"{agent.VERSIONED}/{name}.new", text)
        controller.run(["mv", f"{agent.VERSIONED}/{name}.new", f"{agent.VERSIONED}/{name}"])
