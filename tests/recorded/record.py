"""Records what the commands of a Slurm release print, from real daemons with real jobs, for the parsers.

Usage, as root: python -m tests.recorded.record [RELEASE]...     (all that are there when none is named)

Writes tests/recorded/<full version>/; recordings that other programs made (README.md names them) stay. What a
release does not have goes into `refused.txt` with the command's own words.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hpctools import conf
from hpctools.errors import SandboxError
from hpctools.sandbox import releases
from hpctools.sandbox.blueprint import example_site
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.slurm import accounting, parse
from tests.system.harness import Cluster, until

HERE = Path(__file__).parent
SACCT = "sacct --allusers --duplicates --starttime=now-1hour --endtime=now+1hour"
STEP_FIELDS = "jobid,jobname,state,exitcode,alloctres,nodelist"
# File name by command; {jobs} is squeue's format of hpctools.slurm.parse, {fields} sacct's of ....accounting.
COMMANDS = {
    "squeue-jobs.txt": "env SLURM_TIME_FORMAT=%s squeue --noheader --states=all --format={jobs}",
    "squeue.json": "squeue --states=all --json",
    "scontrol-show-job.txt": "scontrol --oneliner --details show job",
    "scontrol-show-node.txt": "scontrol --oneliner show node",
    "scontrol-show-node.json": "scontrol show node --json",
    "scontrol-show-partition.txt": "scontrol --oneliner show partition",
    "scontrol-show-partition.json": "scontrol show partition --json",
    "scontrol-show-config.txt": "scontrol show config",
    "scontrol-show-reservation.txt": "scontrol --oneliner show reservation",
    "scontrol-show-topology.txt": "scontrol show topology",
    "scontrol-ping.txt": "scontrol ping",
    "scontrol-ping.json": "scontrol ping --json",
    "sinfo.json": "sinfo --json",
    "sinfo-nodes.txt": "sinfo --noheader --Node --format=%N|%P|%T|%t|%c|%m|%G|%f|%E",
    "sacct.txt": f"env TZ=UTC {SACCT} --allocations --parsable2 --noheader --noconvert --format={{fields}}",
    "sacct-steps.txt": f"env TZ=UTC {SACCT} --parsable2 --format={STEP_FIELDS}",
    "sacct.json": f"{SACCT} --json",
    "sacctmgr-dump-university.txt": "sacctmgr dump uni-gpu file=/dev/stdout",
    "sacctmgr-show-qos.json": "sacctmgr show qos --json",
    "sacctmgr-show-association.json": "sacctmgr show association --json",
    "sdiag.txt": "sdiag",
    "sdiag.json": "sdiag --json",
    "sshare.txt": "sshare --all --parsable2",
    "sprio.txt": "sprio --long",
}
WRONG = (
    "scontrol show node nonesuch",
    "scontrol show job 999999",
    "squeue --noheader --jobs=999999",
    "scontrol update NodeName=nonesuch State=RESUME",
    "scontrol update JobId=999999 TimeLimit=1",
    "sbatch --partition=nonesuch --wrap=true",
    "sbatch --partition=nlp --account=nonesuch --wrap=true",
    "sbatch --partition=nlp --gres=nonesuch:1 --wrap=true",
    "sbatch --partition=nlp --nodes=99 --wrap=true",
    "scancel 999999",
    "sacctmgr --immediate add account nonesuch parent=neverheard",
    "sacctmgr --immediate modify account nonesuch set Fairshare=2",
    "sacctmgr --immediate add qos nlp,nlp",
)


def record(release: str) -> Path:
    """Bring a cluster of the release up, let things happen on it, and write down what its commands say."""
    site = example_site()
    if site is None:
        raise SandboxError("the reference site is not there")
    with TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder, "state"))
        try:
            version = up(sandbox, site, 6, lambda name, seconds: None, slurm=release).slurm
            cluster = Cluster(sandbox)
            live(cluster)
            write(cluster, HERE / version)
            return HERE / version
        finally:
            down(sandbox)


def live(cluster: Cluster) -> None:
    """Jobs in every common state, nodes drained and down, a reservation."""
    steps = ["--job-name=with steps", "--gpus=2", "--constraint=reserved", "--comment=a comment, with: marks"]
    ended = [
        cluster.submit("nlp1", "-pnlp", *steps, "--wrap", "srun --ntasks=1 true"),
        cluster.submit("nlp2", "-pnlp", "--job-name=fails", "--wrap", "exit 3"),
        cluster.submit("cv1", "-pcv", "--job-name=array", "--array=0-2%2", "--wrap", "true"),
    ]
    for job, user in zip(ended[:2], ("nlp1", "nlp2"), strict=True):
        cluster.ended(job, user)
    until(lambda: all(job.state == "COMPLETED" for job in cluster.jobs("cv1")) or None)
    cluster.inside("scontrol", "update", "NodeName=reserved-4", "State=DRAIN", 'Reason=bad fan, "ticket" 12')
    cluster.inside("scontrol", "update", "NodeName=shared-2", "State=DOWN", "Reason=power supply")
    cluster.inside("scontrol", "update", "NodeName=reserved-3", "Comment=moved to rack 7")
    words = ("ReservationName=service", "StartTime=now+1day", "Duration=60", "Nodes=reserved-3", "Users=root")
    cluster.inside("scontrol", "create", "reservation", *words, "Flags=maint")
    four = ("--gpus-per-node=4", "--constraint=reserved")
    running = [
        cluster.submit("nlp1", "-pnlp", "--nodes=2", *four, "--time=1:00:00", "--wrap", "sleep 600"),
        cluster.submit("cv1", "-pcv", "--constraint=shared", "--gres=shard:2", "--wrap", "sleep 600"),
    ]
    for job, user in zip(running, ("nlp1", "cv1"), strict=True):
        until(lambda job=job, user=user: cluster.job(job, user).state == "RUNNING" or None)
    stopped = cluster.submit("nlp1", "-pnlp", "--job-name=stopped", "--wrap", "sleep 600")
    until(lambda: cluster.job(stopped, "nlp1").state == "RUNNING" or None)
    cluster.inside("scancel", str(stopped))
    cluster.ended(stopped, "nlp1")
    cluster.submit("nlp2", "-pnlp", "--qos=high", "--nodes=3", "--gpus-per-node=8", "--wrap", "true")
    cluster.submit("nlp2", "-pnlp", f"--dependency=afterok:{running[0]}", "--wrap", "true")
    cluster.submit("cv1", "-pcv", "--hold", "--array=1-20%4", "--time=2-00:00:00", "--wrap", "true")
    until(lambda: "CANCELLED" in accounted(cluster, stopped) or None)


def accounted(cluster: Cluster, job: int) -> str:
    """The job's state as slurmdbd has it."""
    return cluster.inside("sacct", "-nPXj", str(job), "--format=state").stdout


def write(cluster: Cluster, folder: Path) -> None:
    """Write a file for each command; those that a recording from elsewhere has by that name stay."""
    folder.mkdir(exist_ok=True)
    refused = []
    for name, command in {**COMMANDS, **_live_queries()}.items():
        words = [
            word.format(jobs=parse.JOB_FORMAT, fields=",".join(accounting.FIELDS)) for word in command.split()
        ]
        done = cluster.inside(*words, check=False)
        if done.code == 0 and not (name.endswith(".json") and not done.stdout.lstrip().startswith("{")):
            (folder / name).write_text(_neutral(done.stdout))
        else:
            refused.append(f"$ {command}\n[{done.code}] {(done.stderr or done.stdout).strip()}\n")
    if refused:
        (folder / "refused.txt").write_text("\n".join(refused))
    told = [(command, cluster.inside(*command.split(), check=False)) for command in WRONG]
    texts = [f"$ {command}\n[{done.code}] {(done.stdout + done.stderr).strip()}\n" for command, done in told]
    (folder / "errors.txt").write_text("\n".join(texts))


def _neutral(text: str) -> str:
    """The text without the name of this machine's kernel."""
    return text.replace(os.uname().release, "6.1.0-1-amd64").replace(os.uname().version, "#1 SMP")


def _live_queries() -> dict[str, str]:
    """What the account sync asks."""
    return {
        f"sacctmgr-show-{query[1]}.txt": " ".join(("sacctmgr", "-nP", *query))
        for query in conf.live_queries()
    }


def main(names: list[str]) -> int:
    """Record the named releases, or all that are there."""
    own = releases.own().name
    for name in names or [n for n in releases.SUITES if n == own or not releases.lack(n)]:
        print(record(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
