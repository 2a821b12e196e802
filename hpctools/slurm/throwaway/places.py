"""Where the throwaway daemons have their things, and what both sides know of their words."""

PRIVATE = "/run/hpctools-preflight"
"""Where all of it lies, in memory that only the throwaway daemons see."""
CONF = f"{PRIVATE}/conf"
STATE = f"{PRIVATE}/state"
MUNGE_SOCKET = "/run/munge/munge.socket.2"
KEY_FILE = "slurm.key"

HOPELESS = "retrying in 1sec up to"
"""A file is missing that slurmctld waits a minute for, in vain here."""
