"""What a form has to prove before it changes anything, and where pages may lead.

The cookie alone proves little: a browser sends it with forms of other sites, too. A form has the session's
own token besides, which only pages of this site know.
"""

from __future__ import annotations

import hashlib
import hmac
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Form, Request

from api import rooted
from api.auth.principal import Principal
from api.deps import COOKIE, Visitor
from api.problems import ProblemError


def same_origin(request: Request) -> None:
    """Refuse forms that another site's page sent.

    SameSite keeps the cookie from such requests; this keeps others from signing a visitor in as themselves.

    Raises:
        ProblemError: 403.
    """
    origin = request.headers.get("origin")
    if origin is not None and _host(origin) != request.headers.get("host"):
        raise ProblemError(HTTPStatus.FORBIDDEN, "This form came from another site.")


def form_token(request: Request) -> str:
    """What forms for this visitor carry; it follows from the cookie, and tells nothing about it."""
    secret = request.cookies.get(COOKIE, "")
    return hashlib.sha256(f"hpctools form {secret}".encode()).hexdigest()


def get_sender(
    request: Request,
    visitor: Visitor,
    form: Annotated[str, Form(max_length=64)] = "",
) -> Principal:
    """Who sends a form of ours.

    Raises:
        ProblemError: 401, nobody; 403, the form is another site's, or of a session before.
    """
    same_origin(request)
    if not form.isascii() or not hmac.compare_digest(form, form_token(request)):
        raise ProblemError(
            HTTPStatus.FORBIDDEN, "This form is not of your present session. Open the page again and send it."
        )
    return visitor


Sender = Annotated[Principal, Depends(get_sender)]


def local_path(path: str) -> str:
    """A path of this site; `/` where it leads elsewhere."""
    good = path.startswith("/") and path.isprintable() and not path.startswith(("//", "/\\"))
    return path if good and path.isascii() and len(path) <= 1000 else "/"


def root_of(request: Request) -> str:
    """The path under which a proxy shows the service; empty for none."""
    return rooted.root_of(request.scope)


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
