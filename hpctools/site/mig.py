"""What GPUs can be cut into with Multi-Instance GPU (MIG), and whether a layout fits on one.

Sources: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles" (profiles and their placements, for
A30, A100, H100, H200 and B200 with the memory of each product); NVIDIA mig-parted, config-default.yaml (the
names by product, and how many of one profile a GPU takes); go-nvml's mock of an A100 (placements as NVML
tells them). Profiles with media extensions (`+me`) and graphics (`+gfx`) are left out: Slurm before 23.02.6
does not tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """One kind of slice.

    Attributes:
        name: as `nvidia-smi mig -lgip` spells it, without `MIG`.
        compute: compute slices that it takes.
        size: memory slices that it takes, side by side.
        starts: memory slices that it may begin at.
    """

    name: str
    compute: int
    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """A GPU that can be sliced.

    Attributes:
        model: for example `a100`.
        memory_gb: its memory, as its name has it.
        detected: what Slurm's nvml plugin calls it in the type of a slice: NVML's name in lower case with `_`
            for spaces, up to the first `-` (gpu_nvml.c); one of these.
        compute: compute slices that it has.
        memory: memory slices that it has.
        profiles: what it offers.
    """

    model: str
    memory_gb: int
    detected: tuple[str, ...]
    compute: int
    memory: int
    profiles: tuple[Profile, ...]

    def profile(self, name: str) -> Profile | None:
        """Return a profile by name; None when this GPU does not offer it."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.model.upper()} {self.memory_gb} GB"


# Compute slices, memory slices, and where it may begin; in the order of the names below.
_SEVEN = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, (0, 2, 4, 6)),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)
_FOUR = ((1, 1, (0, 1, 2, 3)), (2, 2, (0, 2)), (4, 4, (0,)))


def _seven(model: str, memory_gb: int, names: str, *detected: str) -> Product:
    shapes = zip(names.split(), _SEVEN, strict=True)
    profiles = tuple(Profile(name, *shape) for name, shape in shapes)
    return Product(model, memory_gb, detected, 7, 8, profiles)


def _four(model: str, memory_gb: int, names: str, *detected: str) -> Product:
    shapes = zip(names.split(), _FOUR, strict=True)
    profiles = tuple(Profile(name, *shape) for name, shape in shapes)
    return Product(model, memory_gb, detected, 4, 4, profiles)


PRODUCTS = (
    _four("a30", 24, "1g.6gb 2g.12gb 4g.24gb", "nvidia_a30"),
    _seven("a100", 40, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", "nvidia_a100"),
    _seven(
        *("a100", 80, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        *("nvidia_a100", "nvidia_a100_80gb_pcie"),
    ),
    _seven(
        *("h100", 80, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        *("nvidia_h100_80gb_hbm3", "nvidia_h100_pcie"),
    ),
    _seven("h100", 94, "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb", "nvidia_h100_nvl"),
    _seven("gh200", 96, "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb", "nvidia_gh200_480gb"),
    _seven(
        *("h200", 141, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
        *("nvidia_h200", "nvidia_h200_nvl"),
    ),
    _seven("b200", 180, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", "nvidia_b200"),
    _seven("gb200", 186, "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb", "nvidia_gb200"),
)

# AWS EC2, "Accelerated computing instances": the GPU of each, and which of the names above NVML gives it.
_INSTANCES = {
    "p4d.24xlarge": ("a100", 40, "nvidia_a100"),
    "p4de.24xlarge": ("a100", 80, "nvidia_a100"),
    "p5.4xlarge": ("h100", 80, "nvidia_h100_80gb_hbm3"),
    "p5.48xlarge": ("h100", 80, "nvidia_h100_80gb_hbm3"),
    "p5e.48xlarge": ("h200", 141, "nvidia_h200"),
    "p5en.48xlarge": ("h200", 141, "nvidia_h200"),
    "p6-b200.48xlarge": ("b200", 180, "nvidia_b200"),
}

_WORDS = re.compile(r"[_-]")
_MEMORY = re.compile(r"(\d+)gb")


def products(gpu_type: str, instance_type: str | None = None) -> tuple[Product, ...]:
    """Return the GPUs that a site may mean.

    Args:
        gpu_type: the site's word: `a100`, `a100-80gb`, `h100_80gb_hbm3`, `nvidia_a100`.
        instance_type: the cloud's instance type, when the nodes are of one; it tells the memory.

    Returns:
        One, or several that differ in memory; none when the type is not known to have MIG.
    """
    words = _WORDS.split(gpu_type.removeprefix("nvidia_"))
    sizes = {int(match[1]) for word in words if (match := _MEMORY.fullmatch(word))}
    found = [p for p in PRODUCTS if p.model == words[0] and (not sizes or p.memory_gb in sizes)]
    told = _INSTANCES.get((instance_type or "").removeprefix("ml."))
    if told is None:
        return tuple(found)
    return tuple(product for product in found if (product.model, product.memory_gb) == told[:2])


def instance_gpu(instance_type: str | None) -> str | None:
    """Return what people call the GPU of an instance type, for example `A100 40 GB`; None when unknown."""
    told = _INSTANCES.get((instance_type or "").removeprefix("ml."))
    return f"{told[0].upper()} {told[1]} GB" if told else None


def detected_names(gpu_type: str, instance_type: str | None = None) -> tuple[str, ...]:
    """Return what Slurm's nvml plugin may call the GPUs that `products` finds."""
    told = _INSTANCES.get((instance_type or "").removeprefix("ml."))
    names = [name for product in products(gpu_type, instance_type) for name in product.detected]
    return tuple(dict.fromkeys(name for name in names if told is None or name == told[2]))


def model_names() -> tuple[str, ...]:
    """Return the models that are known to have MIG."""
    return tuple(dict.fromkeys(product.model for product in PRODUCTS))


def fits(product: Product, layout: Mapping[str, int]) -> bool:
    """Whether the slices of a layout find places on one GPU beside each other.

    Args:
        product: the GPU.
        layout: profile names and how many of each.
    """
    wanted = [product.profile(name) for name, count in layout.items() for _ in range(count)]
    known = [profile for profile in wanted if profile is not None]
    if len(known) < len(wanted) or sum(profile.compute for profile in known) > product.compute:
        return False
    # The largest have the fewest places; so a dead end shows early.
    return _place(sorted(known, key=lambda profile: (len(profile.starts), -profile.size)), frozenset())


def _place(left: Sequence[Profile], taken: frozenset[int]) -> bool:
    if not left:
        return True
    first, *rest = left
    for start in first.starts:
        slices = frozenset(range(start, start + first.size))
        if not slices & taken and _place(rest, taken | slices):
            return True
    return False


def fractions(product: Product | None, layout: Mapping[str, int]) -> dict[str, float]:
    """Return the part of a GPU that each kind of slice stands for; the slices of a layout make up one GPU.

    A slice counts by what it takes most of, compute or memory. What a layout leaves unused is borne by its
    slices, since nobody else can have it.

    Args:
        product: the GPU; when None the slices count by the compute in their names.
        layout: profile names and how many of each.
    """
    weights = {name: _weight(product, name) for name in layout}
    total = sum(weights[name] * count for name, count in layout.items())
    return {name: weight / total for name, weight in weights.items()}


def _weight(product: Product | None, name: str) -> float:
    profile = product.profile(name) if product else None
    if product is None or profile is None:
        return float(name.partition("g")[0])
    return max(profile.compute / product.compute, profile.size / product.memory)
