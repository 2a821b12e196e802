"""Programs of the site's own: what makes containers work, what makes the node report its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.failures import Failure
from provision.processes import TIMED_OUT, call
from provision.step import Context

CHECK_SECONDS = 20.0


def observability_is_done(context: Context) -> bool:
    """Whether the node reports its metrics, or nobody wants that of it."""
    return _is_done(context, "observability")


def run_observability(context: Context) -> None:
    """Run the site's program."""
    _run(context, "observability")


def containers_are_done(context: Context) -> bool:
    """Whether containers work here, or nobody wants them here."""
    return _is_done(context, "containers")


def run_containers(context: Context) -> None:
    """Run the site's program."""
    _run(context, "containers")


def _hook(context: Context, name: str) -> Mapping[str, Any]:
    hook: Mapping[str, Any] = context.settings.section(name)
    return hook if hook and context.role in hook["roles"] else {}


def _is_done(context: Context, name: str) -> bool:
    hook = _hook(context, name)
    return not hook or call(hook["check"], limit=CHECK_SECONDS).code == 0


def _run(context: Context, name: str) -> None:
    """Run the program of a hook.

    Raises:
        Failure: it failed, took too long, or its own check still says that it is not done.
    """
    hook = _hook(context, name)
    if not hook:
        return
    done = call(hook["command"], limit=float(hook["limit"]))
    for line in f"{done.out}{done.err}".splitlines():
        print(line)
    problem = "" if done.code == 0 else f"ended with exit code {done.code}"
    if done.code == TIMED_OUT:
        problem = f"did not end within {hook['limit']} s"
    if problem:
        raise Failure(f"{hook['command'][0]} {problem}")
