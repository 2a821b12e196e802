"""A real Slurm cluster on this machine in one command."""
