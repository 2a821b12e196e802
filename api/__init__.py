"""The HTTP service: budgets read from the bill and from Slurm's accounting."""
