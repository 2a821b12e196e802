"""From the `Gres=` of a node line to the GPUs and counted things of a node group."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpctools.conf.existing.words import Words
from hpctools.conf.plan.values import gres

_NOT_COUNTED = ("gpu", "shard", "mps", "nic", "craynetwork")  # hpctools.site.scalars.GresName
_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)  # hpctools.site.scalars.GpuType


def gres_words(text: str) -> Words:
    """Return the entries `gpus` and `gres`, as far as the words of a site file can say what `Gres=` says.

    Whole GPUs of one type, alone or with shards or MPS spread evenly over them, and what is only counted.
    Anything else, such as MIG slices, is left to the node group's `parameters`.
    """
    found = [part.split(":") for part in gres(text).split(",") if part]
    counted = {part[0]: int(part[1]) for part in found if len(part) == 2 and part[0] not in _NOT_COUNTED}
    return {**_gpus(found), **({"gres": counted} if counted else {})}


def _gpus(found: Sequence[Sequence[str]]) -> Words:
    whole = [part for part in found if part[0] == "gpu"]
    shared = [part for part in found if part[0] in ("shard", "mps")]
    if len(whole) != 1 or len(whole[0]) != 3 or not _TYPE.fullmatch(whole[0][1]):
        return {}
    _, model, count = whole[0]
    words: Words = {"type": model, "count": int(count)}
    if len(shared) == 1 and len(shared[0]) == 2 and int(count) and int(shared[0][1]) % int(count) == 0:
        each = int(shared[0][1]) // int(count)
        words["share"] = {"shards_per_gpu" if shared[0][0] == "shard" else "mps": each}
    return {"gpus": words}
