"""The training of bench/histories.py on workers that each have a GPU of their own, for which gloo stands.

    devices_train.py OUT [options of bench/exact_programs/history.py]

Each worker writes to `OUT/<worker>.devices` what became of its groups of the devices. When `OUT/doomed` is
there, the first replica that finds it dies in the middle of a collective of the devices.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / "elastic"), str(ROOT)]

from stand_in import CPU, StandIn, accelerator  # noqa: E402

from hpctools.elastic import fast, links  # noqa: E402
from hpctools.elastic.device_group import DeviceGroup  # noqa: E402

out = Path(sys.argv[1])
worker = os.environ["HPCTOOLS_WORKER"]
story = (out / f"{worker}.devices").open("a", buffering=1)


class Noted(StandIn):
    def __init__(self, store: Any, rank: int, world: int) -> None:
        super().__init__(store, rank, world)
        self._world = world

    def allreduce(self, tensors: list[Any]) -> Any:
        work = super().allreduce(tensors)
        story.write(f"{'linked' if len(self.reduced) == 1 else 'reduced'} {self._world}\n")
        if worker.startswith("r") and len(self.reduced) > 1 and is_doomed():
            story.write("dies\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return work

    def abort(self) -> None:
        story.write(f"aborted {self._world}\n")
        super().abort()


def is_doomed() -> bool:
    try:
        (out / "doomed").unlink()
    except FileNotFoundError:
        return False
    return True


def accelerator_of(device: object) -> Any:
    """Of GPU number LOCAL_RANK of our node."""
    node = f"{os.environ['SLURMD_NODENAME']}/{os.environ['LOCAL_RANK']}"
    ours = accelerator(0, uuid=f"GPU-{node}", place=node)
    return type(ours)(ours.card, CPU, lambda *place: DeviceGroup(Noted(*place), CPU))


LATE_STEP_SECONDS, sleep = 0.3, time.sleep


def long_sleep(seconds: float) -> None:
    """The second half of the training lasts until the scenario is through, also on a busy machine."""
    sleep(1.0 if seconds == LATE_STEP_SECONDS else seconds)


time.sleep = long_sleep
links.accelerator_of = accelerator_of
fast.FIRST_BUCKET_BYTES = fast.BUCKET_BYTES = 64  # several buckets
runpy.run_path(str(ROOT / "bench" / "exact_programs" / "history.py"), run_name="__main__")
