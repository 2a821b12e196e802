"""What nodes cost and what is left, from the site's API, kept in the user's cache folder.

Nobody waits for the API: an answer that comes too late serves the next submission.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

WAIT_SECONDS = 0.3
FRESH = {"rates": 3600, "outlook": 300}
"""Seconds for which an answer is not asked for again."""
OLDEST = 7 * 86400
"""Seconds after which an answer is worth nothing."""
_SECONDS = 10.0
_LARGEST = 1 << 20
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Known:
    """What is known of prices.

    Attributes:
        rates: /v1/rates, as it was answered; None when nobody ever answered.
        outlook: of the account's budget; None when it has none, or nobody answered.
        age: seconds since the older of them was answered.
    """

    rates: Mapping[str, Any] | None
    outlook: Mapping[str, Any] | None
    age: int = 0


@dataclass(frozen=True)
class Source:
    """The API, and who asks.

    Attributes:
        cache: the folder of answers.
    """

    scheme: str
    host: str
    path: str
    token: str
    cache: Path


def find_source(environment: Mapping[str, str]) -> Source | None:
    """The API of $HPCTOOLS_API with the token in $HPCTOOLS_API_TOKEN_FILE (~/.hpctools/token); None without.

    A token is sent over https only, or to this machine.
    """
    token = read_token(environment)
    try:
        address = urlsplit(environment.get("HPCTOOLS_API", ""))
        name = address.hostname
    except ValueError:
        return None
    if not token or not name or (address.scheme != "https" and name not in _HERE):
        return None
    home = environment.get("HOME", "/nonexistent")
    caches = Path(environment.get("XDG_CACHE_HOME") or Path(home) / ".cache")
    who = hashlib.sha256(f"{address.geturl()} {token}".encode()).hexdigest()[:24]
    folder = caches / "hpctools" / "budget" / who
    return Source(address.scheme, address.netloc.rpartition("@")[2], address.path.rstrip("/"), token, folder)


def read_token(environment: Mapping[str, str]) -> str:
    """The token in $HPCTOOLS_API_TOKEN_FILE (~/.hpctools/token); "" when there is none."""
    stated = environment.get("HPCTOOLS_API_TOKEN_FILE")
    path = Path(stated) if stated else Path(environment.get("HOME", "/nonexistent")) / ".hpctools" / "token"
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return token if token.isprintable() else ""


def look(source: Source, account: str | None, wait: float = WAIT_SECONDS) -> Known:
    """What is known, asked anew where it is not fresh; waits no longer than `wait` seconds."""
    paths = {"rates": "/v1/rates"}
    if account:
        paths["outlook"] = f"/v1/accounts/{quote(account.lower(), safe='')}/outlook"
    now = time.time()
    stale = {name: path for name, path in paths.items() if _age(source, name, path, now) > FRESH[name]}
    if stale:
        done = threading.Event()
        # A daemon: who answers late answers for the next time.
        threading.Thread(target=_ask, args=(source, stale, done), daemon=True).start()
        done.wait(wait)
    now = time.time()
    found = {name: _read(source, name, path, now) for name, path in paths.items()}
    age = max((_age(source, name, path, now) for name, path in paths.items() if found[name]), default=0)
    return Known(found["rates"], found.get("outlook"), int(age))


def _ask(source: Source, paths: Mapping[str, str], done: threading.Event) -> None:
    import http.client

    kind = http.client.HTTPSConnection if source.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {source.token}"}
    try:
        with contextlib.closing(kind(source.host, timeout=_SECONDS)) as connection:
            for name, path in paths.items():
                # http.client follows no redirections, so the token goes nowhere else.
                connection.request("GET", f"{source.path}{path}", headers=headers)
                response = connection.getresponse()
                text = response.read(_LARGEST)
                _keep(source, name, path, response.status, text)
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        pass  # what is in the cache has to do
    done.set()


def _keep(source: Source, name: str, path: str, status: int, text: bytes) -> None:
    """Keep an answer; that there is no such thing is one as well."""
    if status not in (200, 404):
        return
    answer = json.loads(text) if status == 200 else None
    file = _file(source, name, path)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    import tempfile  # slow to import, and only those need it who keep something

    descriptor, temporary = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump({"path": path, "answer": answer}, stream)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _file(source: Source, name: str, path: str) -> Path:
    return source.cache / f"{name}-{hashlib.sha256(path.encode()).hexdigest()[:16]}.json"


def _age(source: Source, name: str, path: str, now: float) -> float:
    try:
        return max(0.0, now - _file(source, name, path).stat().st_mtime)
    except OSError:
        return float("inf")


def _read(source: Source, name: str, path: str, now: float) -> Mapping[str, Any] | None:
    if _age(source, name, path, now) > OLDEST:
        return None
    try:
        kept = json.loads(_file(source, name, path).read_text(encoding="utf-8"))
        answer = kept["answer"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return answer if isinstance(answer, dict) else None
