"""What the usual cloud instance types have.

Source: AWS EC2 DescribeInstanceTypes (VCpuInfo.DefaultCores and DefaultThreadsPerCore, MemoryInfo.SizeInMiB,
GpuInfo), as recorded by moto 5.2. SageMaker's `ml.` types are the same machines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instance:
    """One instance type.

    Attributes:
        cores: physical cores.
        threads: hardware threads per core.
        memory_mib: nominal memory, MiB; an operating system sees a few per cent less.
        gpus: GPUs; 0 when it has none.
    """

    cores: int
    threads: int
    memory_mib: int
    gpus: int = 0


_GIB = 1024

_INSTANCES = {
    "c5.xlarge": Instance(2, 2, 8 * _GIB),
    "c5.9xlarge": Instance(18, 2, 72 * _GIB),
    "c5.18xlarge": Instance(36, 2, 144 * _GIB),
    "c5.24xlarge": Instance(48, 2, 192 * _GIB),
    "g4dn.xlarge": Instance(2, 2, 16 * _GIB, 1),
    "g4dn.12xlarge": Instance(24, 2, 192 * _GIB, 4),
    "g5.xlarge": Instance(2, 2, 16 * _GIB, 1),
    "g5.2xlarge": Instance(4, 2, 32 * _GIB, 1),
    "g5.4xlarge": Instance(8, 2, 64 * _GIB, 1),
    "g5.8xlarge": Instance(16, 2, 128 * _GIB, 1),
    "g5.12xlarge": Instance(24, 2, 192 * _GIB, 4),
    "g5.16xlarge": Instance(32, 2, 256 * _GIB, 1),
    "g5.24xlarge": Instance(48, 2, 384 * _GIB, 4),
    "g5.48xlarge": Instance(96, 2, 768 * _GIB, 8),
    "g6.xlarge": Instance(2, 2, 16 * _GIB, 1),
    "g6.12xlarge": Instance(24, 2, 192 * _GIB, 4),
    "g6.48xlarge": Instance(96, 2, 768 * _GIB, 8),
    "g6e.12xlarge": Instance(24, 2, 384 * _GIB, 4),
    "g6e.48xlarge": Instance(96, 2, 1536 * _GIB, 8),
    "m5.large": Instance(1, 2, 8 * _GIB),
    "m5.4xlarge": Instance(8, 2, 64 * _GIB),
    "m5.12xlarge": Instance(24, 2, 192 * _GIB),
    "m5.24xlarge": Instance(48, 2, 384 * _GIB),
    "p3dn.24xlarge": Instance(48, 2, 768 * _GIB, 8),
    "p4d.24xlarge": Instance(48, 2, 1152 * _GIB, 8),
    "p4de.24xlarge": Instance(48, 2, 1152 * _GIB, 8),
    "p5.4xlarge": Instance(8, 2, 256 * _GIB, 1),
    "p5.48xlarge": Instance(96, 2, 2048 * _GIB, 8),
    "p5e.48xlarge": Instance(96, 2, 2048 * _GIB, 8),
    "p5en.48xlarge": Instance(96, 2, 2048 * _GIB, 8),
    "p6-b200.48xlarge": Instance(96, 2, 2048 * _GIB, 8),
    "r5.24xlarge": Instance(48, 2, 768 * _GIB),
    "t3.medium": Instance(1, 2, 4 * _GIB),
    "t3.xlarge": Instance(2, 2, 16 * _GIB),
}


def known_instance(name: str) -> Instance | None:
    """Return what an instance type has, with or without SageMaker's `ml.`; None when unknown."""
    return _INSTANCES.get(name.removeprefix("ml."))


def instance_names() -> tuple[str, ...]:
    """Return the names in the table, without `ml.`."""
    return tuple(_INSTANCES)
