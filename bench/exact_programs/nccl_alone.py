"""nccl's group as hpctools.elastic makes it, of this one process: what it costs, and that it can be aborted.

Prints one JSON object.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from hpctools.elastic import device_group
from hpctools.elastic.devices import accelerator_of

c10d: Any = torch.distributed  # torch types not all of what it exports from C++
BYTES, TIMES = 20 << 20, 20
LIMIT = timedelta(seconds=60)

device = torch.device("cuda", 0)
torch.zeros(1, device=device)
found = accelerator_of(device)
if found is None:
    raise SystemExit("this torch has no nccl that can be aborted (2.25 or later)")
told: dict[str, object] = {"card": found.card.told()}
for number in ("first", "second"):  # the second one finds whether the first left anything behind
    begun = time.monotonic()
    group = found.make(c10d.HashStore(), 0, 1)
    tensor = torch.arange(BYTES // 4, dtype=torch.float32, device=device)
    expected = tensor.clone()
    group.all_reduce(tensor).wait(LIMIT)
    linked = time.monotonic()
    for _ in range(TIMES):
        group.all_reduce(tensor).wait(LIMIT)
    reduced = time.monotonic()
    right = torch.equal(tensor, expected)
    aborted = time.monotonic()
    group.abort()
    for thread in list(device_group._ending):
        thread.join(LIMIT.total_seconds())
    told[number] = {
        "link_s": linked - begun,
        "all_reduce_s": (reduced - linked) / TIMES,
        "abort_s": time.monotonic() - aborted,
        "ended": not any(thread.is_alive() for thread in device_group._ending),
        "right": right,
    }
print(json.dumps(told))
