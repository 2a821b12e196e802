"""The steps of Slurm on machines with real daemons: MariaDB, slurmdbd, slurmctld, slurmd.

What the rest of the machines does to each other is in tests/system/test_bootstrap*.py.
"""

from collections.abc import Iterator

import pytest

from hpctools import conf
from hpctools.cli.hyperpod_bundle import bundle_of
from hpctools.hyperpod.bundle import write_bundle
from hpctools.sandbox.hosts import Fleet, Host, Hosts, hosts, image
from hpctools.sandbox.hosts.plan import Group
from hpctools.site import loads
from tests.lifecycle.test_follow import until
from tests.lifecycle.world import SITE

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
FLEET = Fleet(
    groups=(Group("controller", "controller", 1), Group("gpu", "compute", 1, "ml.g5.12xlarge")),
    partition="gpu-nodes",
)
AS_NLP1 = ("setpriv", "--reuid=nlp1", "--regid=nlp1", "--init-groups")
RUN = ("bash", f"{image.BUNDLE}/on_create.sh", "--backoff", "0.1")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("machines") / "bundle"
    # A slurmctld that reads the accounts of people whom its machine does not know yet refuses their jobs.
    text = SITE.replace(", gpus: {type: a10g, count: 4}", "") + "lifecycle: {users: {nlp1: 20001}}\n"
    write_bundle(bundle_of(loads(text), None, conf.Facts(slurm_version=(22, 5, 8))), folder)
    with hosts(folder, FLEET) as made:
        image.write_slurm_conf(made["controller-1"], FLEET)
        for name in ("controller-1", "gpu-1"):
            done = made[name].run(RUN, timeout=120, check=False)
            assert done.code == 0, done.stdout
        yield made


@pytest.fixture
def controller(machines: Hosts) -> Host:
    return machines["controller-1"]


def said(host: Host, *argv: str) -> list[str]:
    return host.run(argv).stdout.splitlines()


def associations(host: Host) -> set[str]:
    return set(said(host, "sacctmgr", "-nP", "show", "assoc", "format=account,user,fairshare"))


def test_a_job_of_a_departments_person_runs_and_is_accounted(machines: Hosts, controller: Host) -> None:
    until(lambda: said(controller, "sinfo", "-hp", "nlp", "-o", "%T") == ["idle"])
    assert said(controller, *AS_NLP1, "srun", "-p", "nlp", "hostname") == [
        FLEET.of_role("compute")[0].hostname
    ]
    jobs = ["sacct", "-nPX", "-u", "nlp1", "-o", "account,partition,qos,state"]
    until(lambda: said(controller, *jobs) == ["nlp-lab|nlp|normal|COMPLETED"])


def test_a_worker_whose_site_states_no_access_is_not_left_closed(machines: Hosts) -> None:
    """03-closed let administrators in alone; the rules of a compute node have taken its place."""
    stack = machines["gpu-1"].read("/etc/pam.d/sshd")
    assert stack.count("# hpctools: begin") == 1
    assert ("pam_slurm_adopt.so" in stack, "Only administrators may log in" in stack) == (True, False)


def test_a_controller_lets_administrators_in_alone(controller: Host) -> None:
    stack = controller.read("/etc/pam.d/sshd")
    assert stack.count("# hpctools: begin") == 1
    assert "Only administrators may log in" in stack


def test_what_somebody_changed_comes_back_and_what_they_added_stays(controller: Host) -> None:
    wanted = associations(controller)
    for change in (
        "modify account where name=nlp-lab set fairshare=77",
        "remove user where name=nlp2 account=nlp-lab",
        "add account extra parent=nlp",
        "modify qos normal set priority=7",
    ):
        controller.run(["sacctmgr", "--immediate", *change.split()])
    assert controller.run([*RUN, "--check"], check=False).code == 1
    controller.run(RUN, timeout=120)
    assert associations(controller) == {*wanted, "extra||1"}
    assert said(controller, "sacctmgr", "-nP", "show", "qos", "format=name,priority") == ["normal|100"]
    coordinators = said(controller, "sacctmgr", "-nP", "show", "account", "withcoord", "format=account,coord")
    assert {"nlp|nlp-head", "nlp-lab|nlp-head,nlp-lead"} <= set(coordinators)


def test_the_include_is_put_back_by_itself_and_slurmctld_goes_on(controller: Host) -> None:
    before = said(controller, "pidof", "slurmctld")
    image.write_slurm_conf(controller, FLEET)
    until(lambda: "Include hpctools.conf" in controller.read("/opt/slurm/etc/slurm.conf"))
    until(lambda: "nlp" in said(controller, "sinfo", "-h", "-o", "%R"))
    assert said(controller, "pidof", "slurmctld") == before


def test_a_part_that_slurmctld_does_not_take_costs_neither_cluster_nor_jobs(controller: Host) -> None:
    """On 22.05 such a reconfigure ends slurmctld: it comes back with the part before, its words are told."""
    controller.run([*AS_NLP1, "sbatch", "-p", "nlp", "-o", "/dev/null", "--wrap", "sleep 300"])
    jobs = ["squeue", "-h", "-o", "%P %T"]
    until(lambda: said(controller, *jobs) == ["nlp RUNNING"])
    # What slurmctld had not saved yet when it ended it does not know afterwards.
    begun = int(said(controller, "date", "+%s")[0])
    until(lambda: int(said(controller, "stat", "-c", "%Y", "/var/spool/slurmctld/job_state")[0]) > begun)
    template = f"{image.BUNDLE}/site/slurm/hpctools.conf"
    whole = controller.read(template)
    controller.write(template, f"{whole}PartitionName=broken Nodes=no-such-node\n")
    step = f"{image.BUNDLE}/steps/45-slurm-daemons"
    controller.run(["sed", "-i", "s/# attempts: .*/# attempts: 1/", step])
    done = controller.run(RUN, timeout=200, check=False)
    assert done.code == 1
    assert "runs with that of before" in done.stdout
    assert "fatal: Invalid node names in partition broken" in done.stdout
    assert said(controller, *jobs) == ["nlp RUNNING"]
    controller.write(template, whole)
    controller.run(RUN, timeout=120)
    assert said(controller, *jobs) == ["nlp RUNNING"]
    controller.run(["scancel", "-u", "nlp1"])


def test_a_worker_with_another_address_serves_though_nothing_is_run_on_the_controller(
    machines: Hosts, controller: Host
) -> None:
    """On 22.05 a reconfigure with other nodes ends slurmctld: it is started anew, once."""
    machines.replace("gpu-1", "10.77.0.60")
    image.write_slurm_conf(controller, machines.fleet)
    assert machines["gpu-1"].run(RUN, timeout=120, check=False).code == 0
    until(lambda: said(controller, "sinfo", "-hNp", "nlp", "-o", "%N %T") == ["ip-10-77-0-60 idle"])
    assert said(controller, *AS_NLP1, "srun", "-p", "nlp", "hostname") == ["ip-10-77-0-60"]
