"""Logs as one JSON object a line, with the id of the request that each is about. Secrets never get here."""

from __future__ import annotations

import json
import logging
import logging.config
import re
import uuid
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Literal

Format = Literal["json", "text"]

REQUEST_ID: ContextVar[str] = ContextVar("hpctools_request_id", default="")

_FORM = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# What every record has; the rest was given with `extra`.
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


def request_id(given: str | None) -> str:
    """The id of a request: the client's or the proxy's own where it is a plain one."""
    return given if given is not None and _FORM.fullmatch(given) else uuid.uuid4().hex


class JsonFormatter(logging.Formatter):
    """One line a record; line breaks in messages stay inside of JSON's strings: nobody can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line: dict[str, object] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if name := REQUEST_ID.get():
            line["request_id"] = name
        line |= {key: value for key, value in vars(record).items() if key not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _as_json(line)


# json.dumps would make an encoder for each line.
_as_json = json.JSONEncoder(default=str, ensure_ascii=False).encode


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def configure(form: Format) -> None:
    """Send all logs of the service to standard error.

    uvicorn's own lines about requests are dropped: `api.edge` writes them, without query strings.
    """
    formatter = {"()": JsonFormatter} if form == "json" else {"format": _TEXT}
    # Nobody tells them, and each line would look for all of them (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": formatter},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"level": "INFO", "handlers": ["stderr"]},
            "loggers": {
                "uvicorn.access": {"level": "CRITICAL"},
                # It tells each migration at start; our commands say what was done.
                "alembic": {"level": "WARNING"},
                # It tells where credentials were found.
                "botocore": {"level": "WARNING"},
            },
        }
    )
