"""In which order a cluster's login nodes are tried: the site's API knows, else the person's list."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from hpctools.remote.clusters import Cluster
from hpctools.remote.names import is_host
from hpctools.submit.prices import Source, find_source

SECONDS = 0.5
_LARGEST = 1 << 16


def login_nodes(cluster: Cluster, user: Callable[[], str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Login nodes, the best first. An API that is silent keeps nobody from working.

    Args:
        user: says who logs in there; asked only where there is an API.
    """
    # A name that the list does not have comes before the list's all the same: the node may be new.
    stated = cluster.login_nodes
    source = find_source({**environment, "HPCTOOLS_API": cluster.api}) if cluster.api else None
    answer = _ask(source, user()) if source else None
    said = [str(answer.get("address") or answer.get("node")), *answer.get("others", [])] if answer else []
    named = [_in_list(str(each), stated) for each in said]
    return tuple(dict.fromkeys([*(each for each in named if is_host(each)), *stated]))


def _in_list(name: str, stated: tuple[str, ...]) -> str:
    """A node as the person's list, and so ssh's configuration, calls it."""
    near = [each for each in stated if name == each or each.partition(".")[0] == name.partition(".")[0]]
    return near[0] if len(near) == 1 else name


def _ask(source: Source, user: str) -> dict[str, Any] | None:
    kind = http.client.HTTPSConnection if source.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {source.token}", "Content-Type": "application/json"}
    try:
        with closing(kind(source.host, timeout=SECONDS)) as connection:
            body = json.dumps({"user": user})
            connection.request("POST", f"{source.path}/v1/login/sessions", body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read(_LARGEST)) if response.status in (200, 201) else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("others", []), list) else None
