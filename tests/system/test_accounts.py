"""Accounts against the real slurmdbd with real jobs: nobody who runs loses anything, and history stays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools import conf
from hpctools.conf.slurmdbd import Slurmdbd
from hpctools.errors import CommandError, UnreachableError
from hpctools.sandbox.rise import up
from hpctools.site import loads
from tests.system.harness import Cluster, cluster_of, until

pytestmark = pytest.mark.releases


class Accounts:
    """A cluster whose accounts follow the reference site, with replacements in its text."""

    def __init__(self, cluster: Cluster, site: Path) -> None:
        self.cluster = cluster
        self.text = site.read_text()
        self.told: list[str] = []
        self.slurmdbd = Slurmdbd("uni-gpu", self.tell, self.told.append)

    def tell(self, argv: Sequence[str], stdin: str) -> str:
        return self.cluster.inside(*argv, stdin=stdin).stdout

    def wanted(self, *replacements: tuple[str, str]) -> conf.AccountTree:
        text = self.text
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        return conf.compile(loads(text)).accounts

    def sync(self, *replacements: tuple[str, str], prune: bool = False) -> list[str]:
        """Bring slurmdbd to the site with the replacements; what was told and what was kept."""
        wanted, start = self.wanted(*replacements), len(self.told)
        self.slurmdbd.add(wanted)
        self.slurmdbd.settle(wanted, prune=prune)
        assert self.slurmdbd.left(wanted, prune=prune) == ()
        return self.told[start:]

    def reset(self) -> None:
        """Back to the site as it is, with nothing beside it."""
        found = self.slurmdbd.difference(self.wanted(), prune=True)
        kept = self.slurmdbd.carry_out((*conf.additions(found), *conf.removals(found)))
        assert (kept, [each for each in found.kept if each.jobs]) == ((), [])

    def ask(self, *argv: str) -> list[str]:
        return self.cluster.inside(*argv).stdout.splitlines()

    def association(self, user: str, account: str) -> list[str]:
        """Its number in slurmdbd; none when there is no such association."""
        where = ("where", f"user={user}", f"account={account}", "cluster=uni-gpu")
        return self.ask("sacctmgr", "-nP", "show", "association", *where, "format=ID")

    def past(self, *ids: int) -> list[str]:
        """What accounting shows of jobs: user, account, QoS, number of the association, state."""
        jobs = f"--jobs={','.join(map(str, ids))}"
        rows = self.ask("sacct", "-nPXa", jobs, "-oJobID,User,Account,QOS,AssocID,State")
        return [row.replace(" by 0", "") for row in rows]

    def default(self, user: str) -> list[str]:
        return self.ask("sacctmgr", "-nP", "show", "user", user, "format=DefaultAccount")

    def running(self, user: str, *words: str) -> int:
        job = self.cluster.submit(user, "--time=10", *words, "--wrap=sleep 600")
        until(lambda: self.cluster.job(job, user).state == "RUNNING", 40)
        return job

    def waiting(self, user: str, *words: str) -> int:
        return self.cluster.submit(user, "--time=10", "--begin=now+1hour", *words, "--wrap=true")

    def end(self, user: str, *ids: int) -> None:
        """Cancel jobs and wait until slurmdbd knows that they have ended."""
        self.cluster.inside("scancel", *map(str, ids))
        ended = [*map(str, sorted(ids))]
        until(lambda: [r.split("|")[0] for r in self.past(*ids) if r.endswith("|CANCELLED")] == ended, 60)
        until(lambda: not {job.id for job in self.slurmdbd.jobs()} & set(ids), 60)


@pytest.fixture(scope="module")
def accounts(
    tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str
) -> Iterator[Accounts]:
    with cluster_of(tmp_path_factory.mktemp("accounts"), site_file, 2, slurm_release) as cluster:
        yield Accounts(cluster, site_file)


DL2_MOVES = (
    ("members: [dl1, dl2]", "members: [dl1]"),
    ("members: [cv1, cv2, nlp-cv1]", "members: [cv1, cv2, nlp-cv1, dl2]"),
)


def test_who_moves_while_a_job_runs_keeps_the_old_association_until_it_has_ended(accounts: Accounts) -> None:
    accounts.reset()
    (old,) = accounts.association("dl2", "dl-lab-a")
    job = accounts.running("dl2", "-pdl")
    told = accounts.sync(*DL2_MOVES, prune=True)
    assert told == [
        "load file=/dev/stdin",
        "modify user where name=dl2 cluster=uni-gpu set DefaultAccount=cv-lab-a",
        "kept: association dl2 in dl-lab-a: 1 job running",
    ]
    assert accounts.default("dl2") == ["cv-lab-a"]
    assert accounts.association("dl2", "dl-lab-a") == [old]
    assert accounts.cluster.job(job, "dl2").state == "RUNNING"

    accounts.end("dl2", job)
    assert accounts.sync(*DL2_MOVES, prune=True) == [
        "delete user where name=dl2 account=dl-lab-a cluster=uni-gpu"
    ]
    assert accounts.association("dl2", "dl-lab-a") == []
    assert accounts.past(job) == [f"{job}|dl2|dl-lab-a|medium|{old}|CANCELLED"]

    # Who comes back finds the same association again, and with it the past.
    accounts.reset()
    assert accounts.association("dl2", "dl-lab-a") == [old]
    assert accounts.default("dl2") == ["dl-lab-a"]
    assert accounts.past(job) == [f"{job}|dl2|dl-lab-a|medium|{old}|CANCELLED"]


def test_who_leaves_altogether(accounts: Accounts) -> None:
    """nlp-cv1 has two accounts: newer releases refuse to remove the default one while there is another."""
    accounts.reset()
    told = accounts.sync(
        ("members: [nlp3, nlp-cv1]", "members: [nlp3]"),
        ("members: [cv1, cv2, nlp-cv1]", "members: [cv1, cv2]"),
        ("default_accounts:\n  nlp-cv1: nlp-lab-b\n", ""),
        prune=True,
    )
    assert told == [
        "delete user where name=nlp-cv1 account=cv-lab-a cluster=uni-gpu",
        "delete user where name=nlp-cv1 account=nlp-lab-b cluster=uni-gpu",
    ]
    assert accounts.default("nlp-cv1") == []
    accounts.reset()
    assert accounts.default("nlp-cv1") == ["nlp-lab-b"]


def test_nothing_is_removed_unless_asked(accounts: Accounts) -> None:
    accounts.reset()
    assert not [line for line in accounts.sync(*DL2_MOVES) if "delete" in line]
    assert len(accounts.association("dl2", "dl-lab-a")) == 1
    assert len(accounts.association("dl2", "cv-lab-a")) == 1
    kept = accounts.slurmdbd.difference(accounts.wanted(*DL2_MOVES)).kept
    assert [(each.subject, each.why) for each in kept] == [
        ("dl2 in dl-lab-a", "the site does not name it; pruning removes it")
    ]


def test_a_lab_moves_between_departments_under_a_running_job(accounts: Accounts) -> None:
    accounts.reset()
    (before,) = accounts.association("cv1", "cv-lab-a")
    job = accounts.running("cv1", "-pcv")
    lab = (
        "      - name: cv-lab-a\n        description: Medical imaging\n        supervisor: cv-lead-a\n"
        "        members: [cv1, cv2, nlp-cv1]\n"
    )
    told = accounts.sync((f"    labs:\n{lab}", ""), ("members: [dl1, dl2]\n", f"members: [dl1, dl2]\n{lab}"))
    assert told[0] == "modify account where name=cv-lab-a cluster=uni-gpu set parent=dl"
    assert not [line for line in told if line.startswith(("load", "add", "delete"))]
    assert accounts.association("cv1", "cv-lab-a") == [before]
    assert accounts.cluster.job(job, "cv1").state == "RUNNING"
    accounts.sync()
    assert accounts.association("cv1", "cv-lab-a") == [before]
    assert accounts.cluster.job(job, "cv1").state == "RUNNING"
    accounts.end("cv1", job)


RENAMED = (
    ("      - name: dl-lab-a\n", "      - name: dl-vision\n        renamed_from: dl-lab-a\n"),
    ("  medium:\n", "  usual:\n    renamed_from: medium\n"),
    ("tiers: [high, medium, low, preemptible]", "tiers: [high, usual, low, preemptible]"),
    ("tier: medium", "tier: usual"),
)


@pytest.mark.slow
def test_a_lab_and_a_tier_get_new_names_while_their_jobs_run_and_wait(accounts: Accounts) -> None:
    accounts.reset()
    (old,) = accounts.association("dl1", "dl-lab-a")
    running, waiting = accounts.running("dl1", "-pdl"), accounts.waiting("dl1", "-pdl")
    told = accounts.sync(*RENAMED, prune=True)
    assert "modify account where name=dl-lab-a cluster=uni-gpu set GrpSubmitJobs=0" in told
    assert "modify qos where name=medium set GrpSubmitJobs=0" in told
    assert [line for line in told if line.startswith("kept")] == [
        "kept: association dl1 in dl-lab-a: 1 job running, 1 job pending",
        "kept: account dl-lab-a: 1 job running, 1 job pending",
        "kept: qos medium: 1 job running, 1 job pending",
    ]
    assert accounts.default("dl1") == ["dl-vision"]
    assert [accounts.cluster.job(job, "dl1").state for job in (running, waiting)] == ["RUNNING", "PENDING"]
    # A job that waited under the old names still starts; new ones are refused.
    accounts.cluster.inside("scontrol", "update", f"jobid={waiting}", "starttime=now")
    until(lambda: accounts.cluster.job(waiting, "dl1").state in ("RUNNING", "COMPLETED"), 60)
    with pytest.raises(CommandError, match=r"accounting/QOS policy"):
        accounts.cluster.submit("dl1", "-pdl", "--qos=high", "--account=dl-lab-a", "--wrap=true")

    until(lambda: accounts.past(waiting)[0].endswith("|COMPLETED"), 60)
    accounts.end("dl1", running)
    told = accounts.sync(*RENAMED, prune=True)
    assert "delete account where name=dl-lab-a" in told
    assert "delete qos where name=medium" in told
    assert accounts.past(running, waiting) == [
        f"{running}|dl1|dl-lab-a|medium|{old}|CANCELLED",
        f"{waiting}|dl1|dl-lab-a|medium|{old}|COMPLETED",
    ]
    accounts.reset()
    assert accounts.association("dl1", "dl-lab-a") == [old]


def test_a_coordinator_goes_from_all_accounts_at_once(accounts: Accounts) -> None:
    """Nobody can tell whether the lab's account is theirs by itself; left there it would come to light."""
    accounts.reset()
    for account, names in (("dl", "nlp1"), ("dl-lab-a", "nlp1"), ("cv", "nlp2")):
        accounts.ask("sacctmgr", "-i", "add", "coordinator", f"account={account}", f"names={names}")
    shown = ("sacctmgr", "-nP", "show", "account", "withcoordinator", "format=Account,Coordinators")
    told = [line for line in accounts.sync(prune=True) if "coordinator" in line]
    assert sorted(told) == [
        "delete coordinator account=cv,cv-lab-a names=nlp2",
        "delete coordinator account=dl,dl-lab-a names=nlp1",
    ]
    assert [line for line in accounts.ask(*shown) if "nlp1" in line or "nlp2" in line] == []


@pytest.mark.slow
def test_many_new_labs_get_their_supervisors_on_every_release(accounts: Accounts) -> None:
    """More coordinators than a file of people takes: each release has a way of its own (0157)."""
    accounts.reset()
    wanted = accounts.wanted()
    lab = next(each for each in wanted.accounts if each.name == "dl-lab-a")
    member = next(each for each in wanted.associations if each.account == "dl-lab-a")
    names = [f"many{number}" for number in range(25)]
    labs = [replace(lab, name=name, coordinators=(f"u-{name}",)) for name in names]
    more = replace(
        wanted,
        accounts=(*wanted.accounts, *labs),
        associations=(
            *wanted.associations,
            *(replace(member, user=f"u-{name}", account=name) for name in names),
        ),
        default_accounts={**wanted.default_accounts, **{f"u-{name}": name for name in names}},
    )
    accounts.slurmdbd.add(more)
    accounts.slurmdbd.settle(more, prune=False)
    assert accounts.slurmdbd.left(more, prune=False) == ()
    show = ("show", "account", f"name={','.join(names)}", "withcoordinator", "format=Account,Coordinators")
    shown = dict(line.split("|") for line in accounts.ask("sacctmgr", "-nP", *show))
    assert {name for name in names if f"u-{name}" in shown[name].split(",")} == set(names)
    accounts.reset()
    assert accounts.slurmdbd.left(wanted, prune=True) == ()


def test_restoring_takes_back_exactly_what_came(accounts: Accounts) -> None:
    accounts.reset()
    before = accounts.slurmdbd.read()
    accounts.sync(RENAMED[0], *DL2_MOVES, ("fair_share: 40", "fair_share: 41"), prune=True)
    assert accounts.slurmdbd.restore(before) == ()
    assert as_sets(accounts.slurmdbd.read()) == as_sets(before)


def as_sets(tree: conf.AccountTree) -> tuple[object, ...]:
    """A tree without the order, in which slurmdbd lists what came back last."""
    accounts = {each.name: (each.parent, each.settings, set(each.coordinators)) for each in tree.accounts}
    people = {(each.user, each.account): each.settings for each in tree.associations}
    return accounts, people, dict(tree.default_accounts), {each.name: each.settings for each in tree.qos}


def test_every_setting_of_sacctmgr_comes_and_goes(accounts: Accounts) -> None:
    tres = "cpu=7,gres/gpu=3,mem=2G"
    per_account = {
        "GrpTRES": tres, "GrpTRESMins": tres, "GrpTRESRunMins": tres, "GrpJobs": 11, "GrpSubmitJobs": 12,
        "GrpJobsAccrue": 5, "GrpWall": "3-01:02:03", "MaxTRES": tres, "MaxTRESPerNode": tres,
        "MaxTRESMins": tres, "MaxTRESRunMins": tres, "MaxJobs": 4, "MaxSubmitJobs": 5, "MaxJobsAccrue": 2,
        "MaxWall": "1-00:30:00", "MinPrioThresh": 9, "Priority": 17,
    }  # fmt: skip
    per_tier = {
        "GrpTRES": tres, "GrpTRESMins": tres, "GrpTRESRunMins": tres, "GrpJobs": 11, "GrpSubmitJobs": 12,
        "GrpJobsAccrue": 5, "GrpWall": "3-01:02:03", "MaxTRESPerJob": tres, "MaxTRESPerNode": tres,
        "MaxTRESMinsPerJob": tres, "MaxTRESPerUser": tres, "MaxTRESPerAccount": tres,
        "MaxTRESRunMinsPU": tres, "MaxTRESRunMinsPA": tres, "MinTRESPerJob": "gres/gpu=1",
        "MaxJobsPerUser": 3, "MaxJobsPerAccount": 4, "MaxSubmitJobsPerUser": 5, "MaxSubmitJobsPerAccount": 6,
        "MaxJobsAccruePerUser": 2, "MaxJobsAccruePerAccount": 3, "MaxWall": "1-00:30:00", "MinPrioThresh": 9,
        "UsageThreshold": "0.25", "LimitFactor": "1.5", "Flags": "NoReserve,DenyOnLimit,OverPartQOS",
    }  # fmt: skip
    settings = "settings: {" + ", ".join(f'{key}: "{value}"' for key, value in per_account.items()) + "}"
    tier = "settings: {" + ", ".join(f'{key}: "{value}"' for key, value in per_tier.items()) + "}"
    edits = (
        ("members: [dl1, dl2]\n", f"members: [dl1, dl2]\n        {settings}\n"),
        ("    description: Deadlines and production\n", f"    {tier}\n"),
    )
    accounts.reset()
    accounts.sync(*edits)
    accounts.sync()
    # As something new they go through `load`, and a new tier.
    new = (
        (
            "members: [dl1, dl2]\n",
            f"members: [dl1, dl2]\n      - {{name: dl-lab-z, members: [dl1], {settings}}}\n",
        ),
        ("tiers:\n  critical:\n", f"tiers:\n  brandnew: {{priority: 3, {tier}}}\n  critical:\n"),
        ("default_accounts:\n", "default_accounts:\n  dl1: dl-lab-a\n"),
    )
    accounts.sync(*new)
    accounts.reset()


def test_slurmdbd_goes_in_the_middle_and_the_next_sync_completes(accounts: Accounts, site_file: Path) -> None:
    accounts.reset()
    shares = tuple((f"fair_share: {old}\n", f"fair_share: {old + 1}\n") for old in (40, 35, 25))
    wanted = accounts.wanted(*shares)
    calls = 0

    def tell(argv: Sequence[str], stdin: str) -> str:
        nonlocal calls
        calls += argv[:2] == ("sacctmgr", "--immediate")
        if calls == 3:
            kill(accounts.cluster, "slurmdbd")
        try:
            return accounts.tell(argv, stdin)
        except CommandError as error:
            raise UnreachableError("slurmdbd does not answer") from error

    with pytest.raises(UnreachableError) as caught:
        Slurmdbd("uni-gpu", tell).add(wanted)
    call = "modify account where name=dl cluster=uni-gpu set Fairshare=26"
    assert caught.value.message.endswith(f"while telling slurmdbd: {call}; 2 of 3 calls were done")
    sandbox = accounts.cluster.sandbox
    up(sandbox, site_file, 2, lambda name, seconds: None)
    assert accounts.sync(*shares) == [call]
    accounts.reset()


def kill(cluster: Cluster, name: str) -> None:
    """Kill a daemon, and wait until it is gone."""
    cluster.inside("pkill", "-KILL", "-x", name)
    with contextlib.suppress(CommandError):
        until(lambda: not cluster.inside("pgrep", "-x", name).stdout or None, 20)


def test_strange_names_in_slurmdbd_are_left_alone(accounts: Accounts) -> None:
    accounts.reset()
    strange = ("pi|pe", "new\nline", "a b", "semi;colon", "x@y.z")
    for name in strange:
        accounts.tell(("sacctmgr", "--immediate", "add", "account", f"name={name}", "parent=dl"), "")
    try:
        live = accounts.slurmdbd.read()
        assert {"a b", "semi;colon", "x@y.z"} <= {account.name for account in live.accounts}
        assert [line for line in live.beside.unread if "pi|pe" in line]
        # Below dl there is something that cannot be read: nothing of it may go, but people may.
        found = accounts.slurmdbd.difference(accounts.wanted(*DL2_MOVES), prune=True)
        assert [c.subject for c in found.changes if c.action == "remove"] == ["dl2 in dl-lab-a"]
    finally:
        for name in strange:
            accounts.tell(("sacctmgr", "--immediate", "delete", "account", "where", f"name={name}"), "")


def test_another_cluster_in_the_same_slurmdbd_keeps_all_of_its_own(accounts: Accounts) -> None:
    accounts.reset()
    for words in (
        ("add", "cluster", "other"),
        ("add", "qos", "name=theirs"),
        ("add", "account", "name=shared-acct,their-acct", "cluster=other"),
        ("add", "account", "name=shared-acct", "cluster=uni-gpu", "parent=dl"),
        ("modify", "account", "where", "name=their-acct", "cluster=other", "set", "QOS=theirs"),
        ("add", "user", "name=dl1", "account=shared-acct", "cluster=other"),
        ("add", "user", "name=dl1", "account=shared-acct", "cluster=uni-gpu"),
    ):
        accounts.tell(("sacctmgr", "--immediate", *words), "")
    try:
        told = accounts.sync(prune=True)
        assert "delete account where name=shared-acct cluster=uni-gpu" in told
        assert "kept: qos theirs: other accounts use it" in told
        rows = accounts.ask(
            "sacctmgr", "-nP", "show", "assoc", "where", "cluster=other", "format=account,user"
        )
        assert sorted(rows) == ["root|", "root|root", "shared-acct|", "shared-acct|dl1", "their-acct|"]
        assert accounts.default("dl1") == ["dl-lab-a"]
    finally:
        accounts.tell(("sacctmgr", "--immediate", "delete", "cluster", "other"), "")
        accounts.reset()
