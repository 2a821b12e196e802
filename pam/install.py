#!/usr/bin/python3
"""Install, check and remove who may log in on this node. Standard library only; run as root.

    install.py install   --role compute|login|closed [--settings FILE] [--guard su]...
    install.py check     the same; exit code 1 when anything is not in place
    install.py self-test the same; tries the stack without installing it
    install.py show      the same; prints the stack that would be installed
    install.py remove    the stack as it was

Who runs it by sudo must be an administrator of the settings, or say --without-me, so as not to be out after.
Exit codes: 0 done; 1 a problem; 2 wrong usage; 3 something cannot be read or written; 4 installed, and
something else is left to be put right (`problem:`, as sshd without UsePAM). With 1 to 3 the stack that is
named is as it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True

from pam import roles, settings, transaction  # noqa: E402
from pam.files import FileError  # noqa: E402
from pam.order import Order, OrderError, compose  # noqa: E402
from pam.selftest import SelfTestError  # noqa: E402
from pam.stack import StackError  # noqa: E402

UNFINISHED = 4  # the exit code of `install` that put all in place, where it does not count yet


def main(argv: list[str] | None = None) -> int:
    """Entry."""
    words = _parser().parse_args(argv)
    try:
        return max([_VERBS[words.verb](order) for order in _orders(words)])
    except (OrderError, SelfTestError, StackError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (FileError, settings.SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="install.py", description="Who may log in on this node, by PAM.")
    parser.add_argument("verb", choices=sorted(_VERBS))
    parser.add_argument(
        "--role",
        choices=roles.ROLES,
        help="closed: administrators only; guard: for su, whose sessions then stay in the job",
    )
    parser.add_argument("--settings", type=Path, help="settings.json; its section `access` counts")
    parser.add_argument("--service", default="sshd", help="the PAM service, which is sshd's program name")
    parser.add_argument(
        "--guard", action="append", default=[], metavar="SERVICE", help="also: su, su-l, sudo, sudo-i"
    )
    parser.add_argument(
        "--node", default="", help="Slurm's name of the node, where several slurmds share a host"
    )
    parser.add_argument("--pam-dir", type=Path, default=Order.pam_dir, help="default: %(default)s")
    parser.add_argument(
        "--library", type=Path, default=Order.library, help="for programs; default: %(default)s"
    )
    parser.add_argument(
        "--state", type=Path, default=Order.state, help="for former stacks; default: %(default)s"
    )
    parser.add_argument("--sessions", type=Path, default=Order.sessions, help="default: %(default)s")
    parser.add_argument(
        "--without-me",
        action="store_true",
        help="although you, who run this by sudo, are none of the administrators",
    )
    parser.add_argument(
        "--root", default=os.environ.get("HPCTOOLS_ROOT", ""), help="stands before every path"
    )
    return parser


def _order(words: argparse.Namespace) -> Order:
    if words.role is None and words.verb != "remove":
        _parser().error("--role is missing")
    if "/" in words.service or not words.service.isprintable() or " " in words.service:
        _parser().error(f"--service {words.service!r} is no name of a PAM service")
    if words.node and not words.node.replace("-", "").replace(".", "").replace("_", "").isalnum():
        _parser().error(f"--node {words.node!r} is no name of a node")
    return Order(
        role=words.role or "closed",
        service=words.service,
        settings=settings.load(words.settings),
        node=words.node,
        pam_dir=words.pam_dir,
        library=words.library,
        state=words.state,
        sessions=words.sessions,
        root=words.root.rstrip("/"),
        invoker="" if words.without_me else os.environ.get("SUDO_USER", ""),
    )


def _orders(words: argparse.Namespace) -> list[Order]:
    first = _order(words)
    return [first, *(replace(first, role="guard", service=name) for name in words.guard)]


def _install(order: Order) -> int:
    print("\n".join(transaction.install(order)))
    return UNFINISHED if _check(order) else 0


def _check(order: Order) -> int:
    problems, notes = transaction.check(order)
    for line in notes:
        print(f"note: {line}")
    for line in problems:
        print(f"problem: {line}", file=sys.stderr)
    return 1 if problems else 0


def _remove(order: Order) -> int:
    print("\n".join(transaction.remove(order)))
    return 0


def _self_test(order: Order) -> int:
    report = transaction.self_test(order)
    for line in report.lines:
        print(f"{'WRONG' if line in report.failures else 'ok   '} {line}")
    return 1 if report.failures else 0


def _show(order: Order) -> int:
    wanted = compose(order)
    for name, text in ((order.service, wanted.text), *wanted.copies.items()):
        print(f"== {order.pam_dir / name}\n{text}")
    return 0


_VERBS: dict[str, Callable[[Order], int]] = {
    "install": _install,
    "check": _check,
    "remove": _remove,
    "self-test": _self_test,
    "show": _show,
}

if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted: the stack is the old one or the new one; run it again", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    sys.exit(code)
