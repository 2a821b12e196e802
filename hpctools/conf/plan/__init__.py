"""The plan: what the site wants against what there is, what each difference takes, and whom it touches."""

from hpctools.conf.plan.model import Change, DisturbedJob, FileChange, Need, Plan, Step

__all__ = ["Change", "DisturbedJob", "FileChange", "Need", "Plan", "Step"]
