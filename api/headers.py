"""Headers that every answer has."""

from __future__ import annotations

# Nothing from elsewhere: scripts and drawings are our own files, styles stand in the page itself.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

ID = "X-Request-ID"
SCOPE_ID = "hpctools.request_id"
"""Where a request's id stands in its ASGI scope."""
