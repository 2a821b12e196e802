"""The fixtures of tests/hyperpod/aws_rig.py."""

from tests.hyperpod.aws_rig import _server, aws, clock, server, told, watch

__all__ = ["_server", "aws", "clock", "server", "told", "watch"]
