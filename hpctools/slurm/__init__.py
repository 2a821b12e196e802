"""Everything Slurm says and is told."""
