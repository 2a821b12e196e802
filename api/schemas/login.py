"""Login nodes, sessions on them, and leases.

Times that a node tells are ages in seconds: its clock may be minutes apart from the service's.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.services.login_leases import Asked, Session
from api.services.login_nodes import KnownNode
from api.services.login_reports import OpenSession, Report
from hpctools.budget.month import moment

Kind = Literal["ssh", "ssm", "tmux"]
"""`ssh` and `ssm` (Session Manager) count against limits; a `tmux` that nobody is attached to does not."""

User = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.@-]{0,63}$", examples=["nlp1"])]
Node = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", examples=["login-1"])]
Claim = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
        description="The node's own name of a session, the same as long as it lasts: of ssh PID-START, "
        "where START is the process's start in clock ticks since boot.",
        examples=["4711-88123"],
    ),
]
Origin = Annotated[
    str,
    Field(
        max_length=255,
        pattern=r"^[ -~]*$",
        description="Where it comes from: an address, or empty.",
        examples=["192.0.2.7"],
    ),
]
Age = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, examples=[3.5])]
Part = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, examples=[0.25])]


class Strict(BaseModel):
    """What a program sends: nothing that we do not know, and each thing of the kind that it is said to be."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PlacementIn(Strict):
    """Somebody who wants to log in somewhere."""

    user: User
    avoid: list[Node] = Field(
        default=[],
        max_length=64,
        description="Nodes that did not answer, or are not wanted.",
        examples=[[]],
    )


class PlacementOut(BaseModel):
    """Where to log in."""

    node: str = Field(examples=["login-1"])
    address: str = Field(description="Where its sshd is.", examples=["login-1.uni.example"])
    why: str = Field(
        description="One sentence.",
        examples=["login-1 has the most room: 12 sessions, CPU 20 %, memory 31 %."],
    )
    others: list[str] = Field(
        description="Nodes to try when it does not answer, the best first.", examples=[["login-2"]]
    )
    addresses: dict[str, str] = Field(
        description="Where the sshd of each of these others is.",
        examples=[{"login-2": "login-2.uni.example"}],
    )
    held_seconds: int = Field(
        description="So long the place counts as taken, until the session is there.", examples=[30]
    )


class LeaseIn(Strict):
    """A session that wants to begin; asked by the node that it is on."""

    node: Node
    claim: Claim
    user: User
    kind: Literal["ssh", "ssm"] = Field(default="ssh", examples=["ssh"])
    origin: Origin = ""
    living: list[Claim] | None = Field(
        default=None,
        max_length=1000,
        description="The user's other sessions that this node has now; what is not named there is over. Only "
        "for who asks one question after the other: of those at the same time none knows the others.",
        examples=[["4700-88001"]],
    )
    gone: list[Claim] = Field(
        default=[],
        max_length=1000,
        description="Sessions of this node that are over, whether they were known or not.",
        examples=[["4700-88001"]],
    )

    def asked(self) -> Asked:
        """The session that is asked for."""
        living = None if self.living is None else frozenset(self.living)
        return Asked(self.node, self.claim, self.user, self.kind, self.origin, living, frozenset(self.gone))


class SessionOut(BaseModel):
    """A session that is open."""

    id: int = Field(examples=[812])
    node: str = Field(examples=["login-2"])
    user: str = Field(examples=["nlp1"])
    department: str | None = Field(description="The user's; null for people of none.", examples=["nlp"])
    kind: Kind = Field(examples=["ssh"])
    claim: str = Field(examples=["4711-88123"])
    origin: str = Field(examples=["192.0.2.7"])
    since: datetime = Field(examples=["2026-11-21T09:00:00Z"])
    administrator: bool = Field(description="Not limited.", examples=[False])
    ending: bool = Field(
        description="It is to end: somebody asked for it, or it is one too many.", examples=[False]
    )

    @classmethod
    def of(cls, session: Session) -> SessionOut:
        """A session as it goes over the wire."""
        told = asdict(session)
        return cls.model_validate(
            {**told, "department": session.department or None, "since": moment(session.since)}
        )


class LeaseOut(BaseModel):
    """Whether a session may begin."""

    granted: bool = Field(examples=[True])
    message: str = Field(
        description="For the user when it may not: which sessions there are, and how to end one.",
        examples=[""],
    )
    sessions: list[SessionOut] = Field(description="What the refusal counts; empty otherwise.")


class OpenSessionIn(Strict):
    """A session that is open on a node."""

    claim: Claim
    user: User
    kind: Kind = Field(examples=["ssh"])
    origin: Origin = ""
    age: Age = Field(description="Seconds since it began.")
    administrator: bool = Field(default=False, examples=[False])


class ReportIn(Strict):
    """What a login node's agent tells every few seconds."""

    agent: str = Field(
        pattern=r"^[A-Za-z0-9-]{8,64}$",
        description="Made anew when the agent starts.",
        examples=["3f0c9a54d1c84b0f"],
    )
    sequence: int = Field(
        ge=0,
        lt=2**53,
        description="Grows with each report of the agent; one that comes late is not taken.",
        examples=[17],
    )
    sample_age: Age = Field(description="Seconds since the sessions were looked at.")
    address: str = Field(
        default="",
        max_length=255,
        pattern=r"^[A-Za-z0-9.:_-]*$",
        description="Where its sshd is; when empty, where it was before, else the node's name.",
        examples=["login-1.uni.example"],
    )
    cpus: int = Field(ge=1, le=100_000, examples=[16])
    cpu: Part = Field(description="Part of its CPUs that is busy.")
    memory: Part = Field(description="Part of its memory that is used.")
    draining: bool = Field(default=False, description="Drained on the node itself.", examples=[False])
    closed: bool = Field(
        default=False,
        description="Its sshd refuses people who connect, or does not answer.",
        examples=[False],
    )
    unlimited: bool = Field(
        default=False,
        description="The file that lifts all limits on this node is there.",
        examples=[False],
    )
    sessions: list[OpenSessionIn] = Field(max_length=20_000)
    gone: list[Claim] = Field(
        default=[],
        max_length=20_000,
        description="Sessions that are over, also those that no report has told of.",
        examples=[["4700-88001"]],
    )

    def report(self, node: str) -> Report:
        """What a node told."""
        told = {name: getattr(self, name) for name in type(self).model_fields}
        found = tuple(OpenSession(**vars(each)) for each in self.sessions)
        return Report(node=node, **{**told, "sessions": found, "gone": frozenset(self.gone)})


class ReportOut(BaseModel):
    """What the agent is to know until its next report."""

    taken: bool = Field(description="False: a newer report was there already.", examples=[True])
    lease_seconds: int = Field(
        description="Sessions of a node that is silent for longer do not count.", examples=[30]
    )
    draining: bool = Field(description="By whomever: no new sessions, please.", examples=[False])
    why: str = Field(description="Why, by the service's own word.", examples=[""])
    end: list[str] = Field(description="Claims of sessions that are to be ended.", examples=[[]])
    tell: dict[str, str] = Field(
        description="Why, for their owners, by claim: those that are too many.", examples=[{}]
    )
    drained: bool = Field(
        description="By the service's own word, whatever is said on the node itself.", examples=[False]
    )


class NodeOut(BaseModel):
    """A login node as it was last heard of."""

    name: str = Field(examples=["login-1"])
    address: str = Field(examples=["login-1.uni.example"])
    state: Literal["up", "full", "closed", "draining", "silent"] = Field(examples=["up"])
    silent: bool = Field(
        description="Nothing was heard of it lately; a drained node may be silent, too.", examples=[False]
    )
    heard_seconds_ago: int | None = Field(description="Null: never.", examples=[4])
    sessions: int = Field(examples=[12])
    placed: int = Field(description="Sent there a moment ago, not there yet.", examples=[1])
    users: int = Field(examples=[9])
    cpus: int = Field(examples=[16])
    cpu: Part
    memory: Part
    unlimited: bool = Field(examples=[False])
    why: str = Field(description="Why it is drained; empty otherwise.", examples=[""])

    @classmethod
    def of(cls, known: KnownNode) -> NodeOut:
        """A node as it goes over the wire."""
        node = known.node
        return cls(
            name=node.name,
            address=known.address,
            state=known.state,
            silent=known.silent,
            heard_seconds_ago=None if node.silent_for is None else int(node.silent_for),
            sessions=known.sessions,
            placed=known.placed,
            users=known.users,
            cpus=node.cpus,
            cpu=node.cpu,
            memory=node.memory,
            unlimited=known.unlimited,
            why=known.why,
        )


class FormerAddressOut(BaseModel):
    """An address that a login node had: a load balancer that has it as a target is to let it go."""

    address: str = Field(examples=["10.0.0.5"])
    node: str = Field(examples=["login-1"])
    left_seconds_ago: int = Field(examples=[300])


class NodesOut(BaseModel):
    """All login nodes."""

    nodes: list[NodeOut]
    former: list[FormerAddressOut] = Field(
        description="Addresses that no node has any more, since it has another one or was forgotten."
    )


class ForgottenOut(BaseModel):
    """A node that is no longer known."""

    node: str = Field(examples=["login-1"])


class SessionsOut(BaseModel):
    """A page of sessions, the oldest first."""

    sessions: list[SessionOut]
    next: str | None = Field(description="The cursor of the next page.", examples=[None])


class DrainIn(Strict):
    """Whether a node takes new sessions."""

    draining: bool = Field(examples=[True])
    why: str = Field(default="", max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$", examples=["new kernel"])


class DrainOut(DrainIn):
    """What is so now."""

    node: str = Field(examples=["login-1"])
    known: bool = Field(description="Whether a node of this name has ever told of itself.", examples=[True])


class ClosedOut(BaseModel):
    """A session that is over."""

    node: str = Field(examples=["login-1"])
    claim: str = Field(examples=["4711-88123"])
