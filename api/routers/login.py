"""Login nodes: where to log in, who is there, and what nodes tell."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from api.auth.principal import Principal
from api.db.login_store import LoginStore
from api.deps import Admin, Anybody, Ctx, require
from api.one_way import waited
from api.paging import Paged
from api.problems import ProblemError, not_found
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.login import (
    ClosedOut,
    DrainIn,
    DrainOut,
    ForgottenOut,
    FormerAddressOut,
    NodeOut,
    NodesOut,
    SessionOut,
    SessionsOut,
)
from api.services import login_leases
from api.services.login_forgetting import forget, former_addresses
from api.services.login_nodes import Drain, drains, known_nodes, set_drain
from api.services.login_people import People
from api.services.login_rules import Rules
from api.services.site_file import SiteFile, Version

router = APIRouter(prefix="/v1/login", tags=["login"], route_class=StrictRoute)

NodeName = Annotated[
    str,
    Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="A login node.", examples=["login-1"]),
]
Number = Annotated[int, Path(ge=1, lt=2**53, description="A session's number.", examples=[812])]
_WORD = r"^[^\x00-\x1f\x7f]*$"  # no database takes a NUL in a text
UserName = Annotated[
    str | None, Query(max_length=64, pattern=_WORD, description="Only theirs.", examples=["nlp1"])
]
NodeFilter = Annotated[
    str | None, Query(max_length=128, pattern=_WORD, description="Only there.", examples=["login-1"])
]
ClaimName = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
        description="The node's name of a session.",
        examples=["4711-88123"],
    ),
]
LoginNode = Annotated[Principal, Depends(require("login"))]


# What only looks something up is a coroutine: a thread for each would cost more than all the rest.


async def get_store(request: Request) -> LoginStore:
    """Where leases are kept."""
    store: LoginStore = request.app.state.login_store
    return store


async def site_in_force(site_file: SiteFile) -> Version:
    """What the site says, for logins; only what was never read is waited for, in a thread.

    Raises:
        SiteError: its file cannot be used, and never could since the service began.
    """
    return site_file.in_force() if site_file.is_known else await waited(site_file.in_force)


async def get_version(context: Ctx) -> Version:
    """What the site says, as its file is now or was when it could last be used."""
    return await site_in_force(context.site_file)


Said = Annotated[Version, Depends(get_version)]


async def get_rules(said: Said) -> Rules:
    """What the site says of login nodes."""
    return said.rules


Rule = Annotated[Rules, Depends(get_rules)]


async def get_people(principal: Anybody, said: Said) -> People:
    """For whom the one who asks may do what."""
    return People(principal, said.site, said.rules)


Who = Annotated[People, Depends(get_people)]
Store = Annotated[LoginStore, Depends(get_store)]


@router.get("/sessions", responses=problems(401, 403, 422))
def list_sessions(
    store: Store, people: Who, page: Paged, user: UserName = None, node: NodeFilter = None
) -> SessionsOut:
    """Open sessions of those whom the token may see: one's own, and one's own people's."""
    seen = people.seen()
    if user is not None and seen is not None and user not in seen:
        raise ProblemError(HTTPStatus.FORBIDDEN, f"Your token shows nobody's sessions who is called {user}.")
    wanted = seen if user is None else frozenset({user})
    listing = f"/v1/login/sessions?user={user}&node={node}"
    after = page.after(listing, [int])
    found = login_leases.sessions(store, wanted, node, int(after[0]) if after else 0, page.limit + 1)
    sessions, following = page.next(listing, found, lambda session: (session.id,))
    return SessionsOut(sessions=[SessionOut.of(each) for each in sessions], next=following)


@router.delete("/sessions/{number}", status_code=HTTPStatus.ACCEPTED, responses=problems(401, 404, 422))
def end_session(context: Ctx, store: Store, people: Who, number: Number) -> SessionOut:
    """Have a session ended: its node does it within a heartbeat."""
    session = login_leases.find(store, number)
    if session is None or not people.may_end(session.user):
        raise not_found("session of this number")
    login_leases.ask_to_end(store, context.engine, session, people.principal, context.clock())
    return SessionOut.of(replace(session, ending=True))


@router.delete("/leases/{node}/{claim}", responses=problems(401, 403, 404, 422))
def close_lease(store: Store, principal: LoginNode, node: NodeName, claim: ClaimName) -> ClosedOut:
    """A session is over. Who forgets to say so says it with the next report."""
    if not login_leases.close_lease(store, node, claim):
        raise not_found("session of this node and claim")
    return ClosedOut(node=node, claim=claim)


@router.get("/nodes", responses=problems(401, 403))
def list_nodes(context: Ctx, store: Store, rules: Rule, principal: Anybody) -> NodesOut:
    """All login nodes as they were last heard of."""
    found = known_nodes(store, rules, drains(context.engine))
    former = [FormerAddressOut(**vars(each)) for each in former_addresses(store)]
    return NodesOut(nodes=[NodeOut.of(node) for node in found], former=former)


@router.delete("/nodes/{node}", responses=problems(401, 403, 404, 409, 422))
def forget_node(context: Ctx, store: Store, rules: Rule, principal: Admin, node: NodeName) -> ForgottenOut:
    """Forget a node that is gone, with its leases and its drain. One that reports is refused.

    One that reports later is known again.
    """
    done = forget(store, context.engine, rules, node, principal, context.clock())
    if done == "unknown":
        raise not_found("login node of this name")
    if done == "reports":
        raise ProblemError(
            HTTPStatus.CONFLICT,
            f"{node} still reports: end hp-login-agent there first, or the machine. A node that is to take "
            "no sessions is drained.",
        )
    return ForgottenOut(node=node)


@router.put("/nodes/{node}/drain", responses=problems(401, 403, 422))
def put_drain(context: Ctx, store: Store, principal: Admin, node: NodeName, body: DrainIn) -> DrainOut:
    """Have a node take no new sessions, or take them again; one that has not told of itself yet, too."""
    wanted = Drain(body.draining, body.why)
    known = set_drain(store, context.engine, node, wanted, principal, context.clock())
    return DrainOut(node=node, draining=body.draining, why=body.why, known=known)
