"""A HyperPod cluster on machines of its own: its site, directory and bundle, and what tests ask of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import pytest

from hpctools.sandbox import cgroups
from hpctools.sandbox.hosts import Fleet, Host, Hosts, hosts, image
from hpctools.sandbox.hosts.plan import Group
from hpctools.slurm.run import Completed, run
from tests.system import directory

SITE = Path(__file__).with_name("bootstrap") / "site.yaml"
NLP = tuple(f"nlp{number}" for number in range(1, 6))
CV = tuple(f"cv{number}" for number in range(1, 6))
STRANGER = "guest1"
ADMINISTRATOR = "ubuntu"
LOG = "/var/log/provision/provisioning.log"
SECRET_FILE = "/etc/directory-password"
STEP_SECONDS = 240.0


class Bootstrap:
    """The cluster.

    Args:
        cluster: its machines; none of them configured yet.
    """

    def __init__(self, cluster: Hosts) -> None:
        self.cluster = cluster

    def __getitem__(self, name: str) -> Host:
        return self.cluster[name]

    @property
    def nodes(self) -> list[Host]:
        """All machines but the directory's."""
        return [host for host in self.cluster if host.machine.role != "directory"]

    def command(self, *words: str) -> list[str]:
        """The command line by which HyperPod runs the lifecycle scripts."""
        return ["bash", f"{image.BUNDLE}/on_create.sh", *words]

    def provision(self, name: str, *words: str, check: bool = True, **environment: str) -> Completed:
        """Run the lifecycle scripts on a machine."""
        argv = self.command(*words)
        return self[name].run(argv, check=check, timeout=STEP_SECONDS, **environment)

    def provision_all(self) -> dict[str, Completed]:
        """Run them on all machines at once, while the agent writes slurm.conf, as on a new cluster."""
        image.write_slurm_conf(self["controller-1"], self.cluster.fleet)
        names = [host.machine.name for host in self.nodes]
        with ThreadPoolExecutor(max_workers=len(names)) as pool:
            done = pool.map(lambda name: self.provision(name, check=False), names)
        return dict(zip(names, done, strict=True))

    def prepare(self, host: Host) -> None:
        """Give a machine what the site's people bring there themselves: the reader's password."""
        host.write(SECRET_FILE, directory.PASSWORD, 0o600)

    def log(self, name: str) -> Path:
        """A machine's log of the lifecycle scripts, to be read from outside."""
        return Path(f"/proc/{self[name].pid1.pid}/root{LOG}")

    def replace(self, name: str, address: str = "") -> Host:
        """An empty machine in place of another, of the same name, at the same address unless told another."""
        fresh = self.cluster.replace(name, address)
        self.prepare(fresh)
        return fresh

    def events(self, name: str, kind: str) -> list[dict[str, object]]:
        """The events of one kind in a machine's log of the lifecycle scripts."""
        lines = map(json.loads, self[name].read(LOG).splitlines())
        return [line for line in lines if line["event"] == kind]

    def as_user(self, name: str, user: str, *argv: str, check: bool = True) -> Completed:
        """Run a command on a login node as somebody, without sshd."""
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", *argv]
        return self[name].run(words, check=check, HOME=f"/home/{user}", USER=user, LOGNAME=user)


def need_cgroups() -> None:
    """Skip where jobs are tracked without cgroups: there is nothing that pam_slurm_adopt could adopt into."""
    if cgroups.version() != "v1":
        pytest.skip("this machine gives the nodes no cgroups")


@contextmanager
def bootstrap(folder: Path, workers: int = 3, logins: int = 2) -> Iterator[Bootstrap]:
    """A controller, login nodes, workers and a directory, with the site's bundle delivered.

    Args:
        folder: for the site file and the bundle.
        workers: how many workers.
        logins: how many login nodes.
    """
    need_cgroups()
    counts = {"worker": workers, "login": logins}
    groups = [replace(group, count=counts.get(group.name, group.count)) for group in Fleet().groups]
    fleet = Fleet(groups=(*groups, Group("directory", "directory", 1)), partition="worker")
    with hosts(fleet=fleet) as cluster:
        people = (*NLP, *CV, "nlp-head", "nlp-lead", "cv-head", "cv-lead", STRANGER)
        members = {"hpc": tuple(name for name in people if name != STRANGER)}
        certificate = directory.serve(cluster["directory-1"], people, members)
        site = folder / "site.yaml"
        site.write_text(SITE.read_text().replace("@certificate@", indent(certificate, " " * 6).strip()))
        cluster.deliver(make_bundle(site, folder / "bundle"))
        made = Bootstrap(cluster)
        for host in made.nodes:
            made.prepare(host)
        yield made


def make_bundle(site: Path, folder: Path) -> Path:
    """`hpctools hyperpod bundle`, as a person would run it."""
    program = str(Path(sys.executable).parent / "hpctools")
    words = ["hyperpod", "bundle", str(site), "--out", str(folder), "--cgroup", cgroups.version()]
    run([program, *words], timeout=STEP_SECONDS)
    return folder
