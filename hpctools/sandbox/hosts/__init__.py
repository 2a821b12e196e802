"""Machines that a HyperPod cluster would have, on this one: what the lifecycle scripts are run on for real.

Each has its own root (a layer in memory over this machine's), processes, host name, network and cgroups; a
bridge of their own connects them. Nothing of it can be reached from outside; it ends with whoever made it.
"""

from hpctools.sandbox.hosts.cluster import Hosts, hosts
from hpctools.sandbox.hosts.machine import Host
from hpctools.sandbox.hosts.plan import Fleet, Machine

__all__ = ["Fleet", "Host", "Hosts", "Machine", "hosts"]
