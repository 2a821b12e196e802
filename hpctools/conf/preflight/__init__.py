"""Preflight: a throwaway slurmctld boots a configuration before anything is touched.

It runs in namespaces of its own (network, mounts, processes, host name) with a munged of its own, so that it
reaches no node, no slurmdbd and no file of the machine, and ends with us in every case.
"""

from hpctools.conf.preflight.check import preflight
from hpctools.conf.preflight.folder import bundle_files, live_state, read_folder
from hpctools.conf.preflight.model import Problem, Verdict

__all__ = ["Problem", "Verdict", "bundle_files", "live_state", "preflight", "read_folder"]
