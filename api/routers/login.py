"""Login nodes: where to log in, who is there, and what nodes tell."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from api.auth.principal import Principal
from api.db.login_store import LoginStore
from api.deps import Admin, Anybody, Ctx, require
from api.metrics import Metrics
from api.paging import Paged
from api.problems import ProblemError, not_found
from api.routers import problems
from api.schemas.login import (
    ClosedOut,
    DrainIn,
    DrainOut,
    LeaseIn,
    LeaseOut,
    NodeOut,
    NodesOut,
    PlacementIn,
    PlacementOut,
    ReportIn,
    ReportOut,
    SessionOut,
    SessionsOut,
)
from api.services import login_leases, login_reports
from api.services.login_nodes import HOLD_SECONDS, Drain, drains, known_nodes, place_user, set_drain
from api.services.login_people import People
from api.services.login_rules import Rules, RulesOf
from hpctools.login.limits import Refused
from hpctools.login.placement import Nowhere, Wish

router = APIRouter(prefix="/v1/login", tags=["login"])

NodeName = Annotated[
    str,
    Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="A login node.", examples=["login-1"]),
]
Number = Annotated[int, Path(ge=1, lt=2**53, description="A session's number.", examples=[812])]
UserName = Annotated[str | None, Query(max_length=64, description="Only theirs.", examples=["nlp1"])]
NodeFilter = Annotated[str | None, Query(max_length=128, description="Only there.", examples=["login-1"])]
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


async def get_rules(request: Request) -> Rules:
    """What the site says of login nodes, as its file is now."""
    rules: RulesOf = request.app.state.login_rules
    return rules.current()


Rule = Annotated[Rules, Depends(get_rules)]


async def get_metrics(request: Request) -> Metrics:
    """Where answers are counted."""
    metrics: Metrics = request.app.state.metrics
    return metrics


Counted = Annotated[Metrics, Depends(get_metrics)]


async def get_people(context: Ctx, principal: Anybody, rules: Rule) -> People:
    """For whom the one who asks may do what."""
    return People(principal, context.site_file.current(), rules)


Who = Annotated[People, Depends(get_people)]
Store = Annotated[LoginStore, Depends(get_store)]


@router.post(
    "/sessions",
    status_code=HTTPStatus.CREATED,
    response_model=PlacementOut,
    responses=problems(401, 403, 409, 413, 422),
)
def place_session(store: Store, rules: Rule, people: Who, metrics: Counted, body: PlacementIn) -> Response:
    """Ask where somebody is to log in; the place is held for them for a moment.

    Back to where their tmux or session is; else where there is room. 409 says which sessions they have when
    they may have no more, or why no node takes any.
    """
    if not people.may_place(body.user):
        raise forbidden_for(body.user)
    way = place_user(store, rules, Wish(body.user, avoid=frozenset(body.avoid)))
    metrics.login_answered("place", way.found)
    if isinstance(way.found, Refused):
        raise ProblemError(HTTPStatus.CONFLICT, way.found.message)
    if isinstance(way.found, Nowhere):
        raise ProblemError(HTTPStatus.CONFLICT, f"There is no node to log in: {way.found.why}.")
    found = way.found
    placed = PlacementOut(
        node=found.node,
        address=way.address,
        why=found.why,
        others=list(found.others),
        held_seconds=HOLD_SECONDS,
    )
    return written(placed, HTTPStatus.CREATED)


@router.get("/sessions", responses=problems(401, 422))
def list_sessions(
    store: Store, people: Who, page: Paged, user: UserName = None, node: NodeFilter = None
) -> SessionsOut:
    """Open sessions of those whom the token may see: one's own people's."""
    seen = people.seen()
    wanted = seen if user is None else frozenset({user} if seen is None or user in seen else ())
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


@router.post("/leases", response_model=LeaseOut, responses=problems(401, 403, 413, 422))
def open_lease(store: Store, rules: Rule, principal: LoginNode, metrics: Counted, body: LeaseIn) -> Response:
    """A login node asks whether a session may begin. Asked again for the same claim, it may."""
    refused = login_leases.open_lease(store, rules, body.asked())
    metrics.login_answered("lease", refused)
    if refused is None:
        return written(LeaseOut(granted=True, message="", sessions=[]))
    found = login_leases.sessions(store, {body.user})
    counted = {each.id for each in refused.sessions}
    told = [SessionOut.of(each) for each in found if each.id in counted]
    return written(LeaseOut(granted=False, message=refused.message, sessions=told))


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
    return NodesOut(nodes=[NodeOut.of(node) for node in found])


@router.put("/nodes/{node}/report", response_model=ReportOut, responses=problems(401, 403, 422))
def put_report(
    context: Ctx, store: Store, rules: Rule, principal: LoginNode, node: NodeName, body: ReportIn
) -> Response:
    """What a login node's agent tells every few seconds: how it is, and who is really on it."""
    answer = login_reports.take(store, context.engine, rules, body.report(node), principal.name)
    told = ReportOut(
        taken=answer.taken,
        lease_seconds=rules.lease_seconds,
        draining=answer.draining,
        why=answer.why,
        end=list(answer.end),
    )
    return written(told)


@router.put("/nodes/{node}/drain", responses=problems(401, 403, 422))
def put_drain(context: Ctx, store: Store, principal: Admin, node: NodeName, body: DrainIn) -> DrainOut:
    """Have a node take no new sessions, or take them again."""
    set_drain(store, context.engine, node, Drain(body.draining, body.why), principal, context.clock())
    return DrainOut(node=node, draining=body.draining, why=body.why)


def written(answer: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer as it goes over the wire, for what is asked all the time.

    FastAPI would carry it to a thread of its own, check it a second time and write it there.
    """
    return Response(answer.model_dump_json(), status, media_type="application/json")


def forbidden_for(user: str) -> ProblemError:
    """Who asks may not ask for this person."""
    return ProblemError(
        HTTPStatus.FORBIDDEN,
        f"Your token may not ask for {user}: only for yourself and your account's people.",
    )
