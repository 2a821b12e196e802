"""From what a cluster has (slurm.conf, gres.conf, `sacctmgr dump`) to a site file that wants just that."""
