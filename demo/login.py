"""The story's login node: its agent tells the service of it, and the page of login nodes shows it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from demo.budget import BudgetDesk
from demo.checklist import Checklist
from hpctools.sandbox.cluster import Sandbox

FOLDER = "/root/login-agent"
_PUT = 'umask 077 && mkdir -p "${1%/*}" && cat >"$1"'
_SERVE = 'config="$1"; shift; setsid env "$@" --config "$config" >>"$config.log" 2>&1 &'


class LoginDesk:
    """The first login node, as its agent sees it."""

    def __init__(self, sandbox: Sandbox, checklist: Checklist, desk: BudgetDesk) -> None:
        self.sandbox = sandbox
        self.see = checklist
        self.desk = desk
        self.node = sandbox.blueprint().login_hosts[0]

    def begins(self) -> None:
        """Start the agent; it cares for nobody here, since one machine plays all nodes."""
        settings = {
            "node": self.node,
            "address": self.node,
            "sshd_port": self.sandbox.running().ports[f"sshd-{self.node}"],
            "check_port": 0,
            "metrics_port": 0,
            "socket": f"{FOLDER}/agent.sock",
            "state": FOLDER,
            "unlimited_file": f"{FOLDER}/unlimited",
        }
        words = ("token", "create", "--name", "login-nodes", "--account", "root", "--scope", "login")
        self._put("token", self.desk.service(*words).split()[-1])
        self._put("agent.yaml", json.dumps(settings))
        self.sandbox.inside(
            "sh", "-c", _SERVE, "sh", f"{FOLDER}/agent.yaml", *self._program(), host=self.node
        )

    def shown(self) -> None:
        """The service knows the node and how it is."""
        found = self.see.wait(self._known, f"the agent of {self.node} has told the service of the node", 30)
        load = f"{found['sessions']} sessions, CPU {found['cpu']:.0%}, memory {found['memory']:.0%}"
        self.see.say(f"{self.node} is {found['state']}: {load}; {self.desk.base}/login-nodes")

    def _known(self) -> dict[str, Any] | None:
        nodes = self.desk.told("/v1/login/nodes", "nlp")["nodes"]
        return next((node for node in nodes if node["name"] == self.node and node["state"] == "up"), None)

    def _put(self, name: str, text: str) -> None:
        """A file that only root reads."""
        self.sandbox.inside("sh", "-c", _PUT, "sh", f"{FOLDER}/{name}", host=self.node, stdin=text)

    def _program(self) -> tuple[str, ...]:
        told = (f"HPCTOOLS_API={self.desk.base}", f"HPCTOOLS_API_TOKEN_FILE={FOLDER}/token")
        return (*told, str(Path(sys.executable).with_name("hp-login-agent")))
