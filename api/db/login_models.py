"""Tables of login nodes: what is so now. `login_drain` alone is kept, and append-only.

In SQLite `login_node`, `login_lease`, `login_administrator` and `login_former_address` are used in a file of
their own (`api.db.login_store`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, Index, String, Table, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.db.base import Base, Id


class LoginNode(Base):
    """A login node as its agent last told.

    Attributes:
        agent, sequence: which agent said it and with which report; older ones are not taken.
        former: the agents that told of it before this one, the newest first, with blanks between them.
        heard_at: Unix seconds.
        drained: what `login_drain` says, so that placing somebody asks one store only.
        taken: sessions there and places that are held: counted anew with each report, kept up in between.
        closed: its sshd refuses people who connect.
    """

    __tablename__ = "login_node"

    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    address: Mapped[str] = mapped_column(String(255))
    agent: Mapped[str] = mapped_column(String(64))
    sequence: Mapped[int] = mapped_column(BigInteger)
    heard_at: Mapped[int] = mapped_column(BigInteger)
    cpus: Mapped[int]
    cpu: Mapped[float] = mapped_column(Float(53))
    memory: Mapped[float] = mapped_column(Float(53))
    draining: Mapped[bool]
    unlimited: Mapped[bool]
    drained: Mapped[bool]
    taken: Mapped[int]
    closed: Mapped[bool]
    former: Mapped[str] = mapped_column(String(600), default="", server_default="")


class LoginLease(Base):
    """A session that is open, a tmux that waits, or a place that is held for somebody.

    Attributes:
        claim: the node's own name of it.
        department: the user's; empty for people of none.
        kind: `ssh`, `ssm`, `tmux` or `placed`.
        opened_at, expires_at: Unix seconds; from `expires_at` on it does not count.
        seen: a report of its node had it: before, its process may not look like a session yet.
        audited: the audit trail tells of it; only administrators' sessions are told.
        ending: it is to end: somebody asked for it, or it is one too many.
        why: why it is one too many, for its owner; empty otherwise.
    """

    __tablename__ = "login_lease"
    __table_args__ = (
        UniqueConstraint("node", "claim"),
        Index("login_lease_by_user", "user"),
        Index("login_lease_by_department", "department"),
        Index("login_lease_by_expiry", "expires_at"),
        # SQLite would give the number of the newest to the next one when it is gone; people end by numbers.
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    node: Mapped[str] = mapped_column(String(128))
    claim: Mapped[str] = mapped_column(String(128))
    user: Mapped[str] = mapped_column(String(64))
    department: Mapped[str] = mapped_column(String(128))
    kind: Mapped[str] = mapped_column(String(8))
    origin: Mapped[str] = mapped_column(String(255))
    opened_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int] = mapped_column(BigInteger)
    administrator: Mapped[bool]
    seen: Mapped[bool]
    audited: Mapped[bool]
    ending: Mapped[bool]
    why: Mapped[str] = mapped_column(Text, default="", server_default="")


class LoginAdministrator(Base):
    """Somebody whom a login node knows as an administrator, by a group of a directory's, say.

    Attributes:
        told_at: when one last told so, Unix seconds; no more often than once a day.
    """

    __tablename__ = "login_administrator"

    user: Mapped[str] = mapped_column(String(64), primary_key=True)
    told_at: Mapped[int] = mapped_column(BigInteger)


class LoginFormerAddress(Base):
    """An address that a node had, and has no more: what load balancers are told to let go.

    Attributes:
        left_at: Unix seconds.
    """

    __tablename__ = "login_former_address"

    address: Mapped[str] = mapped_column(String(255), primary_key=True)
    node: Mapped[str] = mapped_column(String(128))
    left_at: Mapped[int] = mapped_column(BigInteger)


class LoginDrain(Base):
    """Somebody drained a node, or gave it back; the newest row of a node counts."""

    __tablename__ = "login_drain"
    __table_args__ = (Index("login_drain_by_node", "node", "id"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    node: Mapped[str] = mapped_column(String(128))
    at: Mapped[int] = mapped_column(BigInteger)
    draining: Mapped[bool]
    why: Mapped[str] = mapped_column(String(500))
    principal: Mapped[str] = mapped_column(String(256))


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)  # noqa: S101 - a class that is mapped to a table
    return table


NODES = _table(LoginNode)
LEASES = _table(LoginLease)
ADMINISTRATORS = _table(LoginAdministrator)
FORMER = _table(LoginFormerAddress)
DRAINS = _table(LoginDrain)
