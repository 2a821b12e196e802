"""The reader's password: from a file that only root may read, or from AWS Secrets Manager."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.site.identity import Bind


def bind_password(bind: Bind | None) -> str:
    """Return the password; "" for nobody in particular.

    Raises:
        HpctoolsError: the file is missing, or others may read it; the secret holds no password.
        UnreachableError: Secrets Manager does not tell.
    """
    if bind is None:
        return ""
    if bind.secret.file is not None:
        return _checked(_from_file(Path(bind.secret.file)), bind.secret.file)
    arn = bind.secret.aws_secret or ""
    return _checked(_password(_from_aws(arn)), arn)


def _from_file(path: Path) -> str:
    try:
        found = path.stat()
        if found.st_mode & 0o077 or found.st_uid not in (0, os.geteuid()):
            raise HpctoolsError(
                f"{path} holds a password, and others may read or change it",
                f"chown root {path}; chmod 600 {path}",
            )
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HpctoolsError(
            f"cannot read the directory's password in {path}: {reason}", "check the file"
        ) from None


def _from_aws(arn: str) -> str:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise HpctoolsError(
            f"the directory's password is in {arn}, and boto3 is not installed", "pip install boto3"
        ) from None
    try:
        client: Any = boto3.client("secretsmanager", region_name=arn.split(":")[3])
        return str(client.get_secret_value(SecretId=arn).get("SecretString") or "")
    except (BotoCoreError, ClientError) as error:
        raise UnreachableError(
            f"cannot read the secret {arn}: {error}", "check its ARN and your rights"
        ) from None


def _password(text: str) -> str:
    """What the key `password` says; "" when there is no such thing."""
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    return str(found.get("password") or "") if isinstance(found, dict) else ""


def _checked(password: str, place: str) -> str:
    if not password:
        raise HpctoolsError(
            f"{place} holds no password",
            "put the reader's password there (a secret: a JSON object with the key `password`)",
        )
    if password != password.strip() or not password.isprintable():
        raise HpctoolsError(
            f"the password in {place} has blanks around it, or characters that sssd.conf cannot hold",
            "give the reader another one",
        )
    return password
