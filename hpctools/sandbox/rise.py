"""`up`: from whatever there is to a cluster that takes jobs; what runs and answers is left alone."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hpctools import conf, site
from hpctools.errors import CommandError, HpctoolsError, SandboxError
from hpctools.sandbox import (
    bill,
    blueprint,
    cgroups,
    files,
    namespace,
    ports,
    process,
    record,
    releases,
    restart,
    unix,
)
from hpctools.sandbox.blueprint import Blueprint
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.daemons import Daemon
from hpctools.sandbox.reconfigure import reconfigure
from hpctools.sandbox.record import Record
from hpctools.sandbox.steps import Reporter, Step, take
from hpctools.sandbox.waiting import until
from hpctools.site.members import members_file
from hpctools.slurm.versions import parse_release, spell_release

PACKAGES = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
# The database comes before slurmdbd: libmariadb 3.4.10 fails every query ("number of columns ... (=0)") on a
# connection that was refused once for an unknown database: so slurmdbd finds out that it must make it.
DATABASE_SQL = (
    "CREATE DATABASE IF NOT EXISTS slurm_acct_db;"
    "CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;"
    "GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
)


def up(
    sandbox: Sandbox,
    site_file: Path,
    nodes: int | None,
    report: Reporter,
    *,
    cgroup: str = "",
    slurm: str = "",
    maker: str = "",
) -> Record:
    """Bring a sandbox up.

    Args:
        sandbox: which one.
        site_file: the site to be; the same as before for a sandbox that exists.
        nodes: compute nodes; as many as the site always has when None.
        report: told each thing that had to be done, and its seconds.
        cgroup: `none` to do without cgroups where a new sandbox could have them.
        slurm: the Slurm release to run, as `24.11`, or `site` for the one that the site states; when empty
            that which the sandbox has, and the machine's own for a new one.
        maker: the program that makes a new one for itself, and may end it.

    Raises:
        SandboxError: root or a package is missing, the site differs, a daemon does not answer.
        SiteError: the site file has findings.
    """
    _check_machine()
    drawn = blueprint.draw(site.load(site_file), nodes)
    wanted = drawn.site.cluster.slurm or "" if slurm == "site" else slurm
    text = site_file.read_text()
    with record.locked(sandbox.layout.lock), _no_lock_of_nothing(sandbox), ports.Hold() as held:
        found = _settle(sandbox, text, drawn, cgroup or cgroups.version(), wanted, held, maker)
        files.prepare(sandbox.layout, drawn, text)
        found = _hold(sandbox, found, held)
        facts = drawn.facts(found.ports, found.cgroup, parse_release(found.slurm))
        bundle = conf.compile(drawn.site, facts)
        changed = files.configure(sandbox.layout, bundle, facts)
        members = members_file(drawn.site, site_file)
        if members is not None:
            files.copy_members(sandbox.layout, members)
        restart.describe(sandbox.layout, drawn.daemons(found.ports))
        take(_Rise(sandbox, found, drawn, bundle).steps(changed), report)
    return sandbox.running()


@contextmanager
def _no_lock_of_nothing(sandbox: Sandbox) -> Iterator[None]:
    """Where an `up` is refused before there is a sandbox, no file stays that says there is one."""
    try:
        yield
    except HpctoolsError:
        if not sandbox.layout.record.exists():
            sandbox.layout.lock.unlink(missing_ok=True)
        raise


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise SandboxError(
            "the sandbox makes namespaces and Unix accounts, which only root may", "run it with sudo"
        )
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = sorted(
        {package for program, package in PACKAGES.items() if not shutil.which(program, path=search)}
    )
    if missing:
        raise SandboxError(
            f"packages are missing: {', '.join(missing)}", f"apt-get install {' '.join(missing)}"
        )


def _settle(
    sandbox: Sandbox,
    text: str,
    drawn: Blueprint,
    cgroup: str,
    slurm: str,
    held: ports.Hold,
    maker: str = "",
) -> Record:
    """The record to go on with: what there is, or a fresh one."""
    checksum = hashlib.sha256(text.encode()).hexdigest()
    total = sum(drawn.node_counts.values())
    found = sandbox.record()
    if found is None:
        installed = releases.find(slurm)
        _make_root(sandbox.layout.root, record.unfinished(sandbox.layout.record))
        name = f"hpctools-{secrets.token_hex(4)}"
        found = Record(name, checksum, total, cgroup, held.choose(drawn.port_names()), maker=maker)
        found = replace(found, slurm=spell_release(installed.release), release=str(installed.root))
    elif (found.site_sha256, found.nodes) != (checksum, total):
        raise SandboxError(
            f"the sandbox in {sandbox.layout.root} was made from another site file or number of nodes",
            f"to heal it name the same --site, and --nodes {found.nodes}; for another one take it down first "
            "(hpctools sandbox down) or use another folder (--state)",
        )
    elif slurm and not found.slurm.startswith(slurm):
        raise SandboxError(
            f"the sandbox in {sandbox.layout.root} runs Slurm {found.slurm}",
            "take it down first (hpctools sandbox down), or use another folder (--state)",
        )
    record.save(sandbox.layout.record, found)
    return found


def _make_root(root: Path, own: Path) -> None:
    """Make the state folder; one that holds anything else is not ours to fill, and later to remove.

    Args:
        own: a file that an `up` which was killed in its first moments has left there.
    """
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    strangers = [entry.name for entry in root.iterdir() if entry != own]
    if strangers:
        raise SandboxError(
            f"{root} is not empty and not a sandbox", "name a new or empty folder with --state"
        )
    root.chmod(0o755)


def _hold(sandbox: Sandbox, found: Record, held: ports.Hold) -> Record:
    """Make the namespaces where their holder has ended; with it every daemon has."""
    if found.holder and process.alive(found.holder):
        held.keep(found.ports)
        return found
    fresh = {**found.ports, **held.choose(held.keep(found.ports))}
    namespace.end_forgotten(sandbox.layout)
    restart.forget(sandbox.layout)
    accounts, release = unix.daemon_accounts(), Path(found.release)
    holder = namespace.create(sandbox.layout, found.id, found.cgroup, accounts, release)
    found = replace(found, holder=holder, processes={}, ports=fresh)
    record.save(sandbox.layout.record, found)
    return found


@dataclass(frozen=True)
class _Rise:
    """The steps of one `up`."""

    sandbox: Sandbox
    record: Record
    blueprint: Blueprint
    bundle: conf.Bundle

    def steps(self, changed: bool) -> list[Step]:
        """All steps, each after those that it depends on."""
        nodes = tuple(f"slurmd-{n}" for n in self.blueprint.compute_hosts)
        daemons = [
            Step(d.name, partial(self._ensure, d), d.after) for d in self.blueprint.daemons(self.record.ports)
        ]
        others = [
            Step("tables", self._tables),
            Step("database", self._database, ("mariadb",)),
            Step("cluster", self._register, ("slurmdbd",)),
            Step("accounts", self._accounts, ("slurmctld",)),
            Step("bill", self._bill, ("moto",)),
            Step("nodes", partial(self._nodes, changed), ("accounts", *nodes)),
        ]
        return _ordered([*daemons, *others])

    def _ensure(self, daemon: Daemon) -> bool:
        """Start a daemon unless it runs; wait until it answers, as one may not that a killed `up` started."""
        log = self.sandbox.layout.logs / f"{daemon.name}.log"
        known = self.record.processes.get(daemon.name)
        if known and process.alive(known):
            self._await(daemon, known, log)
            return False
        holder = self.record.holder
        if holder is None:
            raise SandboxError("the sandbox has no inside", "run up again")
        identity = namespace.found(holder, log)
        if identity is None:
            identity = namespace.start(holder, daemon.host, daemon.argv, log)
        self.sandbox.remember(daemon.name, identity)
        self._await(daemon, identity, log)
        return True

    def _await(self, daemon: Daemon, identity: process.Identity, log: Path) -> None:
        def answers() -> bool:
            if not process.alive(identity):
                raise SandboxError(
                    f"{daemon.name} ended while starting: {namespace.last_line(log)}", f"see {log}"
                )
            return self._answers(daemon)

        until(answers, f"{daemon.name} does not answer", f"see {log}")

    def _answers(self, daemon: Daemon) -> bool:
        if isinstance(daemon.probe, int):
            return self._listens(daemon.probe)
        return self.sandbox.inside(*daemon.probe, check=False).code == 0

    def _listens(self, port: int) -> bool:
        holder = self.record.holder
        return holder is not None and ports.listens(port, namespace.of(holder))

    def _tables(self) -> bool:
        """Make MariaDB's system tables where there are none yet; inside, where its account may enter.

        They appear as a whole: an `up` that was killed meanwhile leaves a folder that nobody uses.
        """
        if (self.sandbox.layout.tree / "var/lib/mysql/data").is_dir():
            return False
        try:
            self._make_tables()
        except CommandError:
            # Seen once in some fifty, right after an `up` was killed: mariadbd "Aborting" in a fresh folder.
            self._make_tables()
        return True

    def _make_tables(self) -> None:
        fresh = f"/var/lib/mysql/new-{secrets.token_hex(4)}"
        words = ["--no-defaults", "--user=mysql", f"--datadir={fresh}", "--skip-test-db"]
        words += ["--auth-root-authentication-method=socket", "--innodb-log-file-size=16M"]
        words += ["--innodb-use-native-aio=0"]  # its kernel memory is shared by all sandboxes
        self.sandbox.inside("mariadb-install-db", *words, timeout=60)
        self.sandbox.inside("mv", "--no-target-directory", fresh, "/var/lib/mysql/data")

    def _database(self) -> bool:
        if "slurmdbd" in self.record.processes:
            return False
        self.sandbox.inside("mariadb", "--no-defaults", "--execute", DATABASE_SQL)
        return True

    def _register(self) -> bool:
        """What slurmdbd must know before slurmctld's first start: QoS and cluster, else their ids differ."""
        if self._applied():
            return False
        return self._carry_out(conf.bootstrap_commands(self.bundle.accounts, self._live()))

    def _accounts(self) -> bool:
        """The rest, which speaks of TRES that slurmctld itself registers."""
        if self._applied():
            return False
        wanted = self.bundle.accounts
        missing = conf.load_file(wanted, self._live())
        if missing.text:
            self.sandbox.inside("sacctmgr", "--immediate", "load", "file=/dev/stdin", stdin=missing.text)
        self._carry_out(conf.sync_commands(wanted, missing.live))
        left = conf.sync_commands(wanted, self._live())
        if left:
            raise SandboxError(
                f"slurmdbd did not take the accounts: {shlex.join(left[0])}", "see the log of slurmdbd"
            )
        self.sandbox.applied(self._checksum())
        return True

    def _applied(self) -> bool:
        """Whether slurmdbd was brought to these accounts before, by a slurmdbd that keeps its tables."""
        return self.record.accounts_sha256 == self._checksum()

    def _checksum(self) -> str:
        return hashlib.sha256(repr(self.bundle.accounts).encode()).hexdigest()

    def _live(self) -> conf.AccountTree:
        """All questions at once: each waits 0.35 s for delayed acknowledgements, not for slurmdbd."""
        queries = conf.live_queries()
        with ThreadPoolExecutor(len(queries)) as pool:
            answers = list(
                pool.map(lambda query: self.sandbox.inside("sacctmgr", "-nP", *query).stdout, queries)
            )
        return conf.parse_live(*answers, cluster=self.blueprint.site.cluster.name)

    def _carry_out(self, commands: Sequence[conf.Command]) -> bool:
        for command in commands:
            self.sandbox.inside("sacctmgr", "--immediate", *command)
        return bool(commands)

    def _bill(self) -> bool:
        """Give moto the bill of the month so far; it forgets when it ends, so a new moto gets it again."""
        known = self.record.processes.get("moto")
        if known and process.alive(known):
            return False
        endpoint = f"http://127.0.0.1:{self.record.ports['moto']}"
        bill.seed(self.blueprint.site, endpoint, int(time.time()), self.blueprint.node_counts)
        return True

    def _nodes(self, changed: bool) -> bool:
        """Wait until every node takes jobs.

        A slurmctld that has just begun saves its state when it is reconfigured: without, 26.05's does not
        start again.
        """
        if changed:
            reconfigure(self.sandbox)
        waited = False

        def ready() -> bool:
            nonlocal waited
            states = self.sandbox.inside("sinfo", "-hN", "-o", "%N %t").stdout.splitlines()
            late = {
                line.split()[0] for line in states if line.endswith(("unk", "unk*", "down*", "down", "*"))
            }
            waited = waited or bool(late)
            return not late

        until(ready, "not every compute node comes up", "see hpctools sandbox logs slurmctld")
        return waited


def _ordered(steps: Sequence[Step]) -> list[Step]:
    """The steps with each after those that it depends on."""
    left, done = {s.name: s for s in steps}, dict[str, Step]()
    while left:
        ready = [s for s in left.values() if all(name in done for name in s.after)]
        if not ready:
            raise SandboxError(f"steps wait for each other: {', '.join(left)}")
        for step in ready:
            done[step.name] = left.pop(step.name)
    return list(done.values())
