"""A Slurm-side management toolkit for research HPC: site compiler, elastic training, budgets."""

__version__ = "0.1.0"
