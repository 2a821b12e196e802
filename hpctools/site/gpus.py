"""GPUs of a node, and how one of them serves several jobs."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.scalars import GpuType, MigProfile, refuse

Detection = Literal["explicit", "nvml"]


class MigDevice(Model):
    """One MIG slice of a node, by its device files."""

    gpu: Annotated[int, Field(ge=0, le=63)]
    """The number of the GPU that it is a slice of (`/dev/nvidiaN`)."""
    profile: MigProfile
    """Its profile."""
    instance: Annotated[int, Field(ge=1, le=65_535)]
    """N of `/dev/nvidia-caps/nvidia-capN` of the GPU instance (`gpuG/giI/access` in
    /proc/driver/nvidia-caps/mig-minors)."""
    compute: Annotated[int, Field(ge=1, le=65_535)]
    """N of the compute instance (`gpuG/giI/ciC/access`)."""


class Share(Model):
    """How one GPU serves several jobs; exactly one way."""

    shards_per_gpu: Annotated[int, Field(ge=2, le=64)] | None = None
    """Jobs that may share one GPU (`--gres=shard:N`). Nothing isolates them from each other."""
    mig: Annotated[dict[MigProfile, Annotated[int, Field(ge=1, le=7)]], Field(min_length=1)] | None = None
    """MIG slices of each GPU: profile and how many. Each is a GPU of its own (`--gpus=a100_3g.20gb:1`)."""
    mig_devices: Annotated[tuple[MigDevice, ...], Field(min_length=1)] | None = None
    """The device files of every slice, where no NVML detects them; alike on all nodes of the group."""
    mps: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Percentage points of CUDA MPS for each GPU, usually 100. MPS serves one user at a time."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Share:
        if sum(way is not None for way in (self.shards_per_gpu, self.mig, self.mps)) != 1:
            refuse("exactly one of: shards_per_gpu, mig, mps")
        if self.mig_devices is not None and self.mig is None:
            refuse("mig beside mig_devices")
        return self


class Gpus(Model):
    """The GPUs of one node."""

    type: GpuType
    """The model in lower case; jobs ask for it with `--gpus=a100:2`."""
    count: Annotated[int, Field(ge=1, le=64)]
    """GPUs in one node."""
    share: Share | None = None
    """How one GPU serves several jobs; whole GPUs only when left out."""
    detection: Detection | None = None
    """How the nodes know their GPUs: `explicit` device files, or NVIDIA's library `nvml`; as the cluster's
    gpu_detection says when left out."""

    @property
    def layout(self) -> dict[str, int]:
        """MIG profiles of each GPU and how many; empty without MIG."""
        return dict(self.share.mig or {}) if self.share else {}

    @property
    def mig_devices(self) -> tuple[MigDevice, ...]:
        """The device files of the slices, where the site states them."""
        return (self.share.mig_devices or ()) if self.share else ()

    def detected_by(self, usual: Detection | None) -> Detection:
        """How the nodes know their GPUs.

        Args:
            usual: the cluster's way. When None too, device files where they are known; MIG slices without
                them by nvml, since the driver numbers them.
        """
        unknown = bool(self.layout) and not self.mig_devices
        return self.detection or usual or ("nvml" if unknown else "explicit")

    @model_validator(mode="after")
    def _every_slice_has_files(self) -> Gpus:
        wanted = {(gpu, name): n for gpu in range(self.count) for name, n in self.layout.items()}
        stated = Counter((device.gpu, device.profile) for device in self.mig_devices)
        if self.mig_devices and dict(stated) != wanted:
            slices = ", ".join(f"{count} of {name}" for name, count in self.layout.items())
            refuse(f"mig_devices of just these slices on each GPU from 0 to {self.count - 1}: {slices}")
        files = [n for device in self.mig_devices for n in (device.instance, device.compute)]
        if len(set(files)) < len(files):
            refuse("each device file in mig_devices once")
        return self
