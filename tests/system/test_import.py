"""`hpctools import` on a cluster that somebody else configured by hand: its plan finds nothing to change."""

from __future__ import annotations

import json

import pytest

from hpctools.sandbox.reconfigure import reconfigure
from tests.system.harness import Cluster

pytestmark = pytest.mark.releases

# What an administrator of ten years has done, where a site file has no words for all of it. The QoS comes
# before the partition that names it: 26.05 does not start with a QoS that slurmdbd does not know, and starts
# anew at a reconfigure; in the foreground, as here, it has answered scontrol by then, and is gone.
EARLY_EDITS = """
set -e
cd /etc/slurm
cp --remove-destination slurm.conf mine && mv mine slurm.conf
sed -i -e 's/^KillWait=.*/KillWait=45/' -e '/^LaunchParameters=/d' -e '/^SchedulerParameters=/d' slurm.conf
cat >> slurm.conf <<END
SchedulerParameters=bf_continue,\\\\
bf_window=4320
PartitionName=DEFAULT MaxTime=3-0 DefMemPerCPU=1000 State=UP
PartitionName=everyone Nodes=ALL Default=YES PriorityJobFactor=3
PartitionName=quick Nodes=reserved-1 MaxTime=30 AllowQos=gold,medium Hidden=YES
END
sacctmgr -i add qos gold priority=700 maxtrespu=gres/gpu=4,cpu=96 flags=DenyOnLimit usagefactor=1.5
"""
LATER_EDITS = """
set -e
sacctmgr -i modify qos gold set grptresmins=cpu=6000
sacctmgr -i add account chem parent=root fairshare=17 description="chemistry: all of it"
sacctmgr -i modify account chem set grptresmins=gres/gpu=60000
sacctmgr -i add account organic parent=chem fairshare=parent maxwall=2-00:00:00 qos=gold,medium
sacctmgr -i modify account organic set defaultqos=gold
sacctmgr -i add account deeper parent=organic
sacctmgr -i add user curie account=chem maxjobs=3
sacctmgr -i add user curie account=deeper grptres=gres/gpu=2 maxsubmitjobs=50
sacctmgr -i add user pasteur account=organic
sacctmgr -i add coordinator account=organic names=pasteur
sacctmgr -i modify user pasteur set adminlevel=operator
"""


@pytest.fixture
def found(small: Cluster) -> Cluster:
    """A cluster that was changed by hand."""
    small.inside("sh", "-c", EARLY_EDITS, timeout=60)
    reconfigure(small.sandbox)
    small.inside("sh", "-c", LATER_EDITS, timeout=60)
    # A question that comes while 26.05 starts anew is lost; scontrol asks again after ten seconds.
    show = ("timeout", "25", "scontrol", "-a", "show", "partition")
    small.until(lambda: "quick" in small.inside(*show, check=False).stdout, limit=60)
    return small


def test_what_is_imported_has_an_empty_plan(found: Cluster) -> None:
    told = found.inside("hpctools", "import", "--out", "/tmp/imported.yaml")
    assert (
        told.stdout
        == "wrote /tmp/imported.yaml; see what hpctools would change: hpctools plan /tmp/imported.yaml\n"
    )
    assert told.stderr == ""
    assert found.inside("hpctools", "validate", "/tmp/imported.yaml").code == 0
    planned = json.loads(found.inside("hpctools", "plan", "/tmp/imported.yaml", "--json").stdout)
    assert planned["changes"] == []
    assert planned["unknown"] == []
    asked = json.loads(found.inside("hpctools", "import", "--json").stdout)
    assert asked["left_out"] == []
    # Files from elsewhere do as well as slurmdbd's answers.
    found.inside("sh", "-c", "sacctmgr dump uni-gpu file=/tmp/dump >&2; sacctmgr -P show qos >/tmp/qos")
    words = ("hpctools", "import", "--dump", "/tmp/dump", "--qos", "/tmp/qos", "--json")
    assert json.loads(found.inside(*words).stdout) == asked


def test_a_file_is_not_replaced_unasked(cluster: Cluster) -> None:
    cluster.inside("hpctools", "import", "--out", "/tmp/once.yaml", "--force")
    again = cluster.inside("hpctools", "import", "--out", "/tmp/once.yaml", check=False)
    assert (again.code, again.stderr) == (
        2,
        "hpctools: /tmp/once.yaml exists; name another file, or replace it with --force\n",
    )
