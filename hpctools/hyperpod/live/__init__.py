"""What only AWS can tell of a cluster: facts are asked once, and rules without a connection judge them."""

from __future__ import annotations

from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.live.facts import AwsFacts
from hpctools.hyperpod.live.gather import gather
from hpctools.hyperpod.live.judge import judge
from hpctools.hyperpod.operations.aws import Aws, connect

__all__ = ["AwsFacts", "check", "gather", "judge"]


def check(files: Files, *, region: str | None = None, aws: Aws | None = None) -> tuple[Finding, ...]:
    """Ask AWS about everything that the files name, and judge it.

    What AWS does not let these credentials see is a warning each (`not-checked`), and so is a service that
    does not answer (`no-answer`); nothing at AWS is changed.

    Args:
        files: the files; those of a cluster on Kubernetes are not asked about.
        region: the region to ask in; that of the environment or of the profile when left out.
        aws: the account; the environment's credentials when left out.

    Raises:
        UnreachableError: no answer at all, no credentials, no region.
        HpctoolsError: boto3 is missing.
    """
    if files.style in ("eks", "unknown"):
        return ()
    return tuple(judge(files, gather(files, aws or connect(region))))
