"""Where a secret is that never stands in the site file itself."""

from __future__ import annotations

from pydantic import model_validator

from hpctools.site.base import Model
from hpctools.site.hyperpod_words import SecretArn
from hpctools.site.scalars import FilePath, refuse


class Secret(Model):
    """Where a secret is; it never stands in the site file. Either a file or an AWS secret."""

    file: FilePath | None = None
    """A file that only root may read, on each machine that needs the secret."""
    aws_secret: SecretArn | None = None
    """The ARN of a secret of AWS Secrets Manager."""

    @model_validator(mode="after")
    def _one(self) -> Secret:
        if (self.file is None) == (self.aws_secret is None):
            refuse("either file or aws_secret")
        return self
