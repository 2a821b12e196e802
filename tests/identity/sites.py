"""Sites with a directory."""

from __future__ import annotations

import json
from typing import Any

from hpctools.site import Site, loads

HEAD = """
cluster: {name: test, provider: own, controllers: [ctl-1]}
node_groups: [{name: cpu, count: 2, hardware: {sockets: 1, cores_per_socket: 4, memory_mib: 8000}}]
tiers: {normal: {priority: 1, default: true}}
departments:
  - name: bio
    supervisor: head
    partition: {node_groups: [cpu]}
    labs:
      - {name: bio-a, members: [static], members_from: [lab-a]}
      - {name: bio-b, members_from: [lab-b, "lab b guests"]}
      - {name: bio-c, members: [cy]}
"""

IDENTITY: dict[str, Any] = {
    "directory": "ldap",
    "domain": "uni.example",
    "uris": ["ldaps://ldap.uni.example"],
    "base": "dc=uni,dc=example",
}


def site_text(head: str = HEAD, **identity: Any) -> str:
    """The text of a site file; JSON is YAML."""
    return f"{head}\nidentity: {json.dumps({**IDENTITY, **identity})}\n"


def site(head: str = HEAD, **identity: Any) -> Site:
    return loads(site_text(head, **identity))
