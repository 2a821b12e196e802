"""A controller whose commands are stand-ins that remember: systemctl, sacctmgr, scontrol, mysql and the rest.

They behave as the real ones were seen to where the scripts depend on it; tests/system has the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpctools import conf
from hpctools.cli.hyperpod_bundle import bundle_of
from hpctools.hyperpod.bundle import NodeBundle
from hpctools.site import loads
from tests.lifecycle.node import CONTROLLER, Node

ETC = "/opt/slurm/etc"
AGENT = """\
ClusterName=uni-gpu
SlurmctldHost=ip-10-1-1-1(10.1.1.1)
SlurmUser=slurm
StateSaveLocation=/var/spool/slurmctld
SlurmctldLogFile=/var/log/slurm/slurmctld.log
TaskPlugin=task/none
NodeName=ip-10-1-1-17 NodeAddr=10.1.1.17 CPUs=48 State=UNKNOWN
PartitionName=dev Nodes=ALL Default=YES
"""
SITE = """\
cluster: {name: uni-gpu, slurm: "24.11", provider: hyperpod, controllers: [controller]}
node_groups:
  - {name: gpu, instance_type: ml.g5.12xlarge, count: 1, gpus: {type: a10g, count: 4}}
  - {name: gpu-2, instance_type: ml.g5.12xlarge, count: {min: 0, max: 2}, gpus: {type: a10g, count: 4}}
  - {name: login, role: login, instance_type: ml.m5.4xlarge, count: 1}
departments:
  - name: nlp
    supervisor: nlp-head
    partition: {node_groups: [gpu, gpu-2]}
    labs: [{name: nlp-lab, supervisor: nlp-lead, members: [nlp1, nlp2]}]
tiers: {normal: {priority: 100, default: true}}
"""
PASSWD = "root:x:0:0:root:/root:/bin/bash\nslurm:x:0:0::/:/usr/sbin/nologin\n"

# Counts its calls and may kill the run at one of them: at the process that HyperPod started.
NOTE = """\
#!/bin/bash
echo "${0##*/} $*" >>"$STAND_IN/calls"
if [ -n "${KILL_AT:-}" ] && [ "$(wc -l <"$STAND_IN/calls")" -ge "$KILL_AT" ] && mkdir "$STAND_IN/killed"; then
  pid=$$; top=
  while [ "$pid" -gt 1 ]; do
    tr '\\0' ' ' <"/proc/$pid/cmdline" | grep -q run_steps.py && top=$pid
    read -r _ _ _ pid _ < <(sed 's/([^)]*)/x/' "/proc/$pid/stat")
  done
  kill -KILL "$top"
fi
"""
# What a slurmctld would not take: an Include that has a line of these.
REFUSED = """\
refused() {
  [ -e "$STAND_IN/refused" ] && grep -q '^Include' "$HPCTOOLS_ROOT/opt/slurm/etc/slurm.conf" &&
    grep -qf "$STAND_IN/refused" "$HPCTOOLS_ROOT/opt/slurm/etc/hpctools.conf"
}
"""
SYSTEMCTL = """\
verb=$1; shift; [ "${1:-}" = --quiet ] && shift
unit=${1:-}
case "$verb" in
  start | restart)
    [ -e "$STAND_IN/broken-$unit" ] && { echo "Job for $unit.service failed." >&2; exit 1; }
    more="$HPCTOOLS_ROOT/etc/systemd/system/$unit.service.d"
    grep -qs 'ConditionPathIsDirectory=!/' "$more/"*.conf && exit 0
    if [ "$unit" = slurmctld ]; then
      refused && {
        mkdir -p "$HPCTOOLS_ROOT/var/log/slurm"
        echo "fatal: bad line in hpctools.conf" >>"$HPCTOOLS_ROOT/var/log/slurm/slurmctld.log"
        rm -f "$STAND_IN/active-slurmctld"; exit 1; }
      if grep -q '|4711' "$HPCTOOLS_ROOT/var/spool/slurmctld/clustername" 2>/dev/null; then
        mkdir -p "$HPCTOOLS_ROOT/var/log/slurm"
        echo 'fatal: CLUSTER ID MISMATCH.' >>"$HPCTOOLS_ROOT/var/log/slurm/slurmctld.log"
        rm -f "$STAND_IN/active-slurmctld"; exit 1
      fi
      [ -e "$STAND_IN/cluster-uni-gpu" ] || touch "$STAND_IN/slurmctld-came-first"
      cat "$HPCTOOLS_ROOT/opt/slurm/etc/"{slurm,hpctools}.conf >"$STAND_IN/running" 2>/dev/null
      echo "BOOT_TIME = $(wc -l <"$STAND_IN/calls")" >>"$STAND_IN/running"
    fi
    touch "$STAND_IN/active-$unit" ;;
  stop) rm -f "$STAND_IN/active-$unit"
    # A slurmd that ends on the head node takes slurm.conf with it.
    [ "$unit" != slurmd ] || rm -f "$HPCTOOLS_ROOT/opt/slurm/etc/slurm.conf" ;;
  is-active) [ -e "$STAND_IN/active-$unit" ] ;;
  cat) [ -e "$STAND_IN/unit-$unit" ] ;;
esac
"""
SCONTROL = """\
[ -e "$STAND_IN/active-slurmctld" ] || { echo "slurm_load_ctl_conf error: Unable to contact" >&2; exit 1; }
case "$*" in
  "show config") sed -n 's/^\\([A-Za-z_]*\\) *= *\\(.*\\)/\\1 = \\2/p' "$STAND_IN/running" | tac ;;
  "show node --oneliner") grep ^NodeName "$STAND_IN/running" ;;
  reconfigure)
    refused && {
      rm "$STAND_IN/active-slurmctld"; exit 1; }
    boot=$(grep BOOT_TIME "$STAND_IN/running")
    cat "$HPCTOOLS_ROOT/opt/slurm/etc/"{slurm,hpctools}.conf >"$STAND_IN/running"
    echo "$boot" >>"$STAND_IN/running" ;;
  ping) ;;
esac
"""
SACCTMGR = """\
[ -e "$STAND_IN/active-slurmdbd" ] || { echo "sacctmgr: error: Connection refused" >&2; exit 1; }
[ -n "${SLURM_CONF:-}" ] || grep -q '^Include' "$HPCTOOLS_ROOT/opt/slurm/etc/slurm.conf" || {
  echo "You are not running a supported accounting_storage plugin" >&2; exit 1; }
D="$STAND_IN"
[ "$1" = --immediate ] && shift
case "$*" in
  *"show cluster"*) [ -e "$D/cluster-uni-gpu" ] && echo uni-gpu; exit 0 ;;
  "add cluster "*) [ -e "$D/cluster-$3" ] && { echo " This cluster $3 already exists.  Not adding."; exit 1; }
    touch "$D/cluster-$3" ;;
  "add qos "*) grep -qsx "${3#name=}" "$D/qos" && { echo " Nothing new added."; exit 1; }
    echo "${3#name=}" >>"$D/qos" ;;
  "load "*) cat >"$D/loaded"; [ -s "$D/loaded" ] ;;
  "modify qos "*) [ -e "$D/qos-changed-by-hand" ] && rm "$D/qos-changed-by-hand"; exit 0 ;;
  *"show assoc"*) [ -e "$D/loaded" ] && while read -r kind _ rest; do
      name=${rest%%:*}; name=${name//\\'/}
      case $kind in Parent) above=$name ;; Account) echo "$name||$above" ;; User) echo "$above|$name|" ;; esac
    done <"$D/loaded"; exit 0 ;;
  *"format=Account,Descr"*) cat "$D/descriptions" 2>/dev/null; exit 0 ;;
  *"show account"*)
    sed -n "s/^User - '\\([^']*\\)'.*Coordinator='\\([^']*\\)'.*/\\2|\\1/p" "$D/loaded"; exit 0 ;;
  *"show user"*) [ -e "$D/loaded" ] && sed -n "s/^User - '\\([^']*\\)'.*/\\1|x/p" "$D/loaded"; exit 0 ;;
  *"show qos"*) cat "$D/qos" "$D/qos-changed-by-hand" 2>/dev/null | sed 's/$/|0/'; exit 0 ;;
esac
"""
MYSQL = """\
[ -e "$STAND_IN/active-mariadb" ] || { echo "Can't connect to local server" >&2; exit 2; }
case "$*" in *"SELECT 1"*) ;; *) cat >>"$STAND_IN/sql" ;; esac
"""


def site_bundle(edit: Callable[[str], str] = lambda text: text) -> NodeBundle:
    """The bundle of a small site."""
    return bundle_of(loads(edit(SITE)), None, conf.Facts())


def controller(node: Node, edit: Callable[[str], str] = lambda text: text) -> Node:
    """Make a node the controller of a small site, as HyperPod's agent leaves it."""
    made = site_bundle(edit)
    node.settings.clear()
    node.settings.update(json.loads(made.file("site/settings.json").content))
    for file in made.files:
        if file.path.startswith("site/slurm/"):
            path = node.bundle / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
    node.is_at(CONTROLLER)
    node.write(f"{ETC}/slurm.conf", AGENT)
    node.write("/etc/passwd", PASSWD)
    node.write("/stand-in/calls", "")
    scripts = {"systemctl": SYSTEMCTL, "scontrol": SCONTROL, "sacctmgr": SACCTMGR, "mysql": MYSQL}
    for name, script in {**scripts, "mariadbd": "", "journalctl": ""}.items():
        node.stand_in(name, NOTE + REFUSED + script)
    keep = ("15", "20", "25", "30", "35", "45", "47", "50", "55", "65")
    node.only_steps(*(p.name for p in (node.bundle / "steps").iterdir() if p.name[:2] in keep))
    return node


def stood_in(node: Node, name: str) -> Path:
    """A file that the stand-ins remember something in."""
    return node.root / "stand-in" / name


def changes(node: Node) -> list[str]:
    """The calls that change something."""
    asking = ("is-active", " show ", "SELECT 1", " cat ", "ping", "journalctl")
    return [call for call in node.calls() if not any(word in call for word in asking)]


def resource_config(node: Node) -> dict[str, Any]:
    """HyperPod's file."""
    found: dict[str, Any] = json.loads(node.path("/opt/ml/config/resource_config.json").read_text())
    return found
