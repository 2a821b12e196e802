"""`hpctools apply` when a disk is full, or fills meanwhile: real file systems under a running cluster."""

from __future__ import annotations

import re

import pytest

from tests.system.applied import Applied, anew, shorter, with_member
from tests.system.harness import until

ETC, STATE, DATABASE = "/etc/slurm", "/var/spool/hpctools", "/var/lib/mysql"
PAGE = 4096

# Everything in a folder goes onto a small file system of its own, which is then the folder.
MOVE = """
mkdir -p {folder}
kept=$(mktemp -d /home/kept.XXXX)
cp -a {folder}/. $kept/
mount -t tmpfs -o size={size},nr_inodes={inodes},mode=755 tmpfs {folder}
chown --reference=$kept {folder}
cp -a $kept/. {folder}/
"""
# Takes all that is left, as a log does that nobody rotates: blocks and inodes.
FILL = """
for folder in /etc/slurm /var/spool/hpctools; do
  dd if=/dev/zero of=$folder/ballast bs=4k status=none 2>/dev/null
  seq --format=$folder/full%g 1000 | xargs touch 2>/dev/null
done
"""
EMPTY = "rm -f /etc/slurm/ballast /etc/slurm/full* /var/spool/hpctools/ballast /var/spool/hpctools/full*"


class Tight:
    """A cluster whose configuration and history lie on small file systems, and a job that runs there."""

    def __init__(self, box: Applied) -> None:
        self.box = box
        self.job = box.running_job()
        self.began = box.cluster.job(self.job, "nlp1").started

    def shell(self, text: str) -> str:
        return self.box.cluster.inside("sh", "-c", text, timeout=60).stdout

    def leave(self, folder: str, pages: int) -> None:
        """Fill a file system but for some pages."""
        self.shell(EMPTY)
        free = int(self.shell(f"stat -f -c %f {folder}"))
        if free > pages:
            self.shell(f"fallocate -l {(free - pages) * PAGE} {folder}/ballast")

    def pages(self, folder: str) -> int:
        """How many are taken."""
        self.shell(EMPTY)
        every, free = self.shell(f"stat -f -c '%b %f' {folder}").split()
        return int(every) - int(free)

    def texts(self) -> str:
        return self.shell("cd /etc/slurm && for file in *.conf; do echo $file; cat $file; done")

    def is_old(self, texts: str, want: str) -> None:
        """Files, slurmctld and the job are as before, and the plan is as if nobody had tried."""
        assert self.texts() == texts
        assert self.box.max_time() == "2-00:00:00"
        plan = self.box.plan(want)
        assert [(c["subject"], c["key"]) for c in plan["changes"] if c["area"] != "association"] == [
            ("nlp", "MaxTime")
        ]
        assert not [line for line in plan["warnings"] if "not completed" in line]
        self.lives()

    def lives(self) -> None:
        job = self.box.cluster.job(self.job, "nlp1")
        assert (job.state, job.started) == ("RUNNING", self.began)

    def tries(self, folder: str, pages: int) -> bool:
        """Apply with so many pages left; whether it was done. Either way all is of one piece."""
        texts, want = self.texts(), shorter(self.box.base)
        if folder == STATE:  # there is something to take back in slurmdbd as well
            want = with_member(want)
        self.leave(folder, pages)
        done = self.box.apply(want, "--yes", check=False)
        assert done.code in (0, 1), done.stderr
        if done.code == 0:
            assert self.box.max_time() == "1-12:00:00"
            self.shell(EMPTY)
            self.box.apply(self.box.base, "--yes", "--prune")
        else:
            where = rf"cannot write {folder}\S*: No space left on device: the file system at {folder} "
            assert re.search(where + r"has [\d,]+ of [\d,]+ KiB left, which is not enough", done.stderr), (
                done.stderr
            )
            assert f"(`df -h {folder}`), then run the same again" in done.stderr
            assert "Traceback" not in done.stderr
            self.is_old(texts, want)
            assert "nlp9" not in self.box.members()
        return done.code == 0


@pytest.fixture(scope="module")
def tight(applied: Applied) -> Tight:
    for folder, size in ((ETC, "512k"), (STATE, "8m")):
        applied.cluster.inside("sh", "-ec", MOVE.format(folder=folder, size=size, inodes=900))
    applied.apply(applied.base, "--yes")  # the history begins
    return Tight(applied)


@pytest.fixture(autouse=True)
def room(tight: Tight) -> None:
    tight.shell(EMPTY)
    tight.box.apply(tight.box.base, "--yes", "--prune", "--discard-edits")


@pytest.mark.parametrize("folder", [ETC, pytest.param(STATE, marks=pytest.mark.long)])
@pytest.mark.slow
def test_with_too_little_room_nothing_changes_and_with_enough_it_is_done(folder: str, tight: Tight) -> None:
    """The least room that is enough is looked for, so that a page less fails as late as can be."""
    assert not tight.tries(folder, 0)
    before = tight.pages(folder)
    assert tight.tries(folder, 64)
    # What stays afterwards is taken at least; a few pages more are taken meanwhile.
    low = max(0, tight.pages(folder) - before) // 2
    high = low + 8
    while high - low > 1:
        middle = (low + high) // 2
        if tight.tries(folder, middle):
            high = middle
        else:
            low = middle


@pytest.mark.releases(all="long")
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.slow
def test_disks_that_fill_while_slurmctld_loads_do_not_keep_the_old_files_from_coming_back(
    again: bool, tight: Tight
) -> None:
    """Not a block nor an inode is left on either: the way back needs none, the last words have theirs kept.

    What fills them `again` on the way back takes those, too; then the record stays that of a killed change.
    """
    box, texts = tight.box, tight.texts()
    once = "" if again else "[ -e /home/filled ] ||"
    script = (
        f"#!/bin/sh\nfill() {{ {FILL} touch /home/filled\n}}\n{once} fill\nexec sandbox-restart slurmctld\n"
    )
    tight.shell("rm -f /home/filled")
    facts = box.facts.replace("- sandbox-restart\n  - slurmctld\n", f"- {box.give('restart', script)}\n", 1)
    failed = box.apply(shorter(anew(box.base)), "--yes", facts=facts, check=False)
    assert failed.code == 1
    full = "No space left on device: the file system at /var/spool/hpctools has 0 of"
    assert full in failed.stderr
    assert "everything is as before" in failed.stderr
    assert "(`df -h /var/spool/hpctools`)" in failed.stderr
    assert tight.texts() == texts
    last = box.history()[-1]
    assert last["in_force"] == "before"
    if again:
        assert (last["result"], [step["need"] for step in last["owed"]]) == ("", ["restart slurmctld"])
        assert [line for line in box.plan(box.base)["warnings"] if "not completed" in line]
    else:
        assert (last["result"], last["owed"]) == ("rolled back", [])
        assert full in last["reason"]
        tight.is_old(texts, shorter(box.base))
        # Without changes an apply needs no room at all.
        assert box.apply(box.base).stdout == "uni-gpu: nothing to do\n"

    tight.shell(EMPTY)
    box.apply(shorter(anew(box.base)), "--yes")
    assert box.max_time() == "1-12:00:00"
    assert not [line for line in box.plan(shorter(anew(box.base)))["warnings"] if "not completed" in line]
    tight.lives()


MANY = ", ".join(f"person{number:05d}" for number in range(2500))
DATABASE_MOVES = f"""
kill $(pidof slurmdbd mariadbd)
while pidof slurmdbd mariadbd; do sleep 0.05; done
{MOVE.format(folder=DATABASE, size="160m", inodes=9000)}
sandbox-restart mariadb
until mariadb --no-defaults -e 'select 1'; do sleep 0.05; done
sandbox-restart slurmdbd
until sacctmgr -n show cluster; do sleep 0.1; done
fallocate -l $(($(stat -f -c %f {DATABASE}) * {PAGE})) {DATABASE}/ballast
"""


@pytest.mark.long
@pytest.mark.releases
def test_a_full_disk_under_the_database_takes_everybody_back(tight: Tight) -> None:
    box = tight.box
    box.cluster.inside("sh", "-ec", DATABASE_MOVES, timeout=60)
    want = shorter(box.base).replace("members: [nlp1, nlp2]", f"members: [nlp1, nlp2, {MANY}]")
    texts, members = tight.texts(), box.members()
    failed = box.apply(want, "--yes", check=False)
    assert failed.code == 1
    assert "slurmdbd's log says more (that its database's disk is full it says only there)" in failed.stderr
    assert "everything is as before" in failed.stderr
    tight.is_old(texts, want)
    assert box.members() == members
    assert "is full" in tight.shell("grep 'mysql_query failed' /var/log/slurm/slurmdbd.log")

    tight.shell(f"rm {DATABASE}/ballast")
    box.apply(want, "--yes")
    assert len(box.members()) == len(members) + 2500
    assert box.max_time() == "1-12:00:00"
    until(lambda: box.plan(want)["changes"] == [], 20)
    tight.lives()
