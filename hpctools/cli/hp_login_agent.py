"""hp-login-agent: the daemon of a login node (docs/login.md)."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import hpctools
from hpctools.cli.ending import arguments, run_command
from hpctools.errors import UsageError

USUAL = Path("/etc/hpctools/login-agent.yaml")
_log = logging.getLogger("hpctools.login")
_SECONDS = 2.0
_EXAMPLES = """\
examples:
  hp-login-agent                          what systemd runs: serve until told to stop
  hp-login-agent --config agent.yaml      with settings from elsewhere (hpctools login render makes them)
  hp-login-agent --print-settings         what the settings are, defaults included
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    given = arguments(parser(), argv)
    return run_command("hp-login-agent", lambda: _serve(given), debug=given.debug)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="hp-login-agent",
        description="Look at this login node, tell the service, answer HAProxy and PAM, and care for people.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", type=Path, metavar="FILE", help=f"its settings (default: {USUAL})")
    made.add_argument("--print-settings", action="store_true", help="print the settings and do nothing")
    made.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    made.add_argument("-V", "--version", action="version", version=f"hp-login-agent {hpctools.__version__}")
    return made


def _serve(given: argparse.Namespace) -> int:
    from hpctools.login.agent.settings import Settings, read_settings

    settings = read_settings(given.config or USUAL) if given.config or USUAL.exists() else Settings()
    if given.print_settings:
        print(settings.model_dump_json(indent=2))
        return 0
    from hpctools.budget.connections import Kept
    from hpctools.budget.service import named_service
    from hpctools.cli.renewed_service import renewed
    from hpctools.login.agent.daemon import serve

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if not os.environ.get("HPCTOOLS_API"):
        serve(settings, None)
        return 0
    # PAM waits for three seconds at most, for connecting, for the answer, and for us.
    service = replace(
        named_service(os.environ), token=_token(os.environ), seconds=_SECONDS, within=_SECONDS, kept=Kept()
    )
    patient, quick = renewed(service, os.environ)
    serve(settings, patient, quick)
    return 0


def _token(environment: Mapping[str, str]) -> str:
    """The token; empty where none can be read now, which is said: drains, care and limits need none."""
    from hpctools.budget.service import read_token

    try:
        return read_token(environment)
    except UsageError as error:
        _log.error("the agent goes on as if the service were away, and looks for its token again: %s", error)
        return ""
