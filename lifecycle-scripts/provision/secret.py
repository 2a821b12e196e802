"""Secrets of AWS Secrets Manager, by the aws command; they are never printed, logged or in arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping

from provision.failures import Failure
from provision.processes import call

SECONDS = 60.0


def read_secret(name: str) -> Mapping[str, str]:
    """Return a secret that is a JSON object of texts.

    Args:
        name: its ARN, which tells the region, or its name.

    Raises:
        Failure: it cannot be had, or is no such object; the message has what aws said, never the secret.
    """
    try:
        found = json.loads(read_text_secret(name))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Failure(f"the secret {name} is no JSON object with username and password")
    return {str(key): str(value) for key, value in found.items()}


def read_text_secret(name: str) -> str:
    """Return a secret as it stands.

    Args:
        name: its ARN, which tells the region, or its name.

    Raises:
        Failure: it cannot be had; the message has what aws said, never the secret.
    """
    parts = name.split(":")
    region = ("--region", parts[3]) if len(parts) > 3 else ()
    argv = ["aws", "secretsmanager", "get-secret-value", "--secret-id", name, "--query", "SecretString"]
    done = call([*argv, "--output", "text", *region], limit=SECONDS)
    if done.code != 0:
        # Standard output may hold a secret even then.
        words = [line for line in done.err.splitlines() if line.strip()]
        raise Failure(f"the secret {name} cannot be read: {words[-1] if words else f'exit code {done.code}'}")
    return done.out
