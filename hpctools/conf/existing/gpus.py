"""From the `Gres=` of a node line to the GPUs of a node group."""

from __future__ import annotations

import re

from hpctools.conf.existing.words import Words
from hpctools.conf.plan.values import gres

_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)  # hpctools.site.scalars.GpuType


def gpu_words(text: str) -> Words:
    """Return the entry `gpus`, when the words of a site file can say what stands in `Gres=`.

    Whole GPUs of one type, alone or with shards or MPS spread evenly over them. Anything else is left to the
    node group's `parameters`.
    """
    found = [part.split(":") for part in gres(text).split(",") if part]
    whole = [part for part in found if part[0] == "gpu"]
    shared = [part for part in found if part[0] in ("shard", "mps")]
    if len(whole) != 1 or len(whole[0]) != 3 or not _TYPE.fullmatch(whole[0][1]):
        return {}
    _, model, count = whole[0]
    words: Words = {"type": model, "count": int(count)}
    if len(shared) == 1 and len(shared[0]) == 2 and int(shared[0][1]) % int(count) == 0:
        each = int(shared[0][1]) // int(count)
        words["share"] = {"shards_per_gpu" if shared[0][0] == "shard" else "mps": each}
    return {"gpus": words}
