"""The budget service: an HTTP API under /v1 and pages for people, over an append-only store."""
