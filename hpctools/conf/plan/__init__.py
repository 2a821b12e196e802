"""The plan: what the site wants against what there is, what each difference takes, and whom it touches."""

from hpctools.conf.plan.compare import make_plan
from hpctools.conf.plan.live import Live, OnDisk
from hpctools.conf.plan.model import Change, DisturbedJob, FileChange, Need, Plan, Step
from hpctools.conf.plan.read import read
from hpctools.conf.plan.settle import settled_plan

__all__ = [
    "Change",
    "DisturbedJob",
    "FileChange",
    "Live",
    "Need",
    "OnDisk",
    "Plan",
    "Step",
    "make_plan",
    "read",
    "settled_plan",
]
