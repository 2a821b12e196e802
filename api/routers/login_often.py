"""Login nodes: what is asked all the time: for a place, for a lease, and what nodes tell."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel

from api.auth.identify import Context
from api.db.login_store import LoginStore
from api.deps import Anybody
from api.metrics import Metrics
from api.one_way import OneWayRoute
from api.problems import ProblemError
from api.queries import StrictRoute
from api.routers import problems
from api.routers.login import LoginNode, NodeName, site_in_force
from api.schemas.login import LeaseIn, LeaseOut, PlacementIn, PlacementOut, ReportIn, ReportOut, SessionOut
from api.services import login_leases, login_reports
from api.services.login_agents import two_of_one_name
from api.services.login_nodes import HOLD_SECONDS, place_user
from api.services.login_people import People
from api.services.login_rules import Rules
from hpctools.budget.tree import BudgetSite
from hpctools.login.limits import Refused
from hpctools.login.placement import Nowhere, Wish


class LoginRoute(StrictRoute, OneWayRoute):
    """Short questions about leases, which take turns in any case."""

    def at_once(self, request: Request) -> bool:
        """What people wait for, where a file answers in a millisecond; reports of nodes may be long.

        Not before the site file could be read: the first time it is waited for.
        """
        store: LoginStore = request.app.state.login_store
        context: Context = request.app.state.context
        return self.in_loop(request) and store.answers_at_once() and context.site_file.is_known

    def in_loop(self, request: Request) -> bool:
        """The same where the store is a server; a report also asks the books, and works for longer."""
        return self.methods == {"POST"}

    def threads(self, request: Request) -> CapacityLimiter:
        """Few: who has the turn waits for the interpreter like all others, and they wait for the turn."""
        threads: CapacityLimiter = request.app.state.login_threads
        return threads


router = APIRouter(prefix="/v1/login", tags=["login"], route_class=LoginRoute)


@dataclass(frozen=True)
class Desk:
    """What such a question needs, in one dependency: each takes FastAPI 0.1 ms."""

    context: Context
    store: LoginStore
    site: BudgetSite
    rules: Rules
    metrics: Metrics


async def get_desk(request: Request) -> Desk:
    """The application's; the site as its file is now, or was when it could last be used."""
    state = request.app.state
    said = await site_in_force(state.context.site_file)
    return Desk(state.context, state.login_store, said.site, said.rules, state.metrics)


At = Annotated[Desk, Depends(get_desk)]


@router.post(
    "/sessions",
    status_code=HTTPStatus.CREATED,
    response_model=PlacementOut,
    responses=problems(401, 403, 409, 413, 422, 503),
)
async def place_session(desk: At, principal: Anybody, body: PlacementIn) -> Response:
    """Ask where somebody is to log in; the place is held for them for a moment.

    Back to where their tmux or session is; else where there is room. 409 says that they may have no more, and
    which sessions they have where you may see these; or why no node takes any. 503: no node has told of
    itself yet.
    """
    people = People(principal, desk.site, desk.rules)
    if not people.may_place(body.user):
        raise forbidden_for(body.user)
    way = place_user(desk.store, desk.rules, Wish(body.user, avoid=frozenset(body.avoid)))
    desk.metrics.login_answered("place", way.found)
    if isinstance(way.found, Refused):
        raise ProblemError(HTTPStatus.CONFLICT, told_of(way.found, people, body.user))
    if isinstance(way.found, Nowhere):
        status = HTTPStatus.CONFLICT if way.found.anybody else HTTPStatus.SERVICE_UNAVAILABLE
        raise ProblemError(status, f"There is no node to log in: {way.found.why}.")
    found = way.found
    placed = PlacementOut(
        node=found.node,
        address=way.address,
        why=found.why,
        others=list(found.others),
        addresses=dict(way.others),
        held_seconds=HOLD_SECONDS,
    )
    return written(placed, HTTPStatus.CREATED)


@router.post("/leases", response_model=LeaseOut, responses=problems(401, 403, 413, 422))
async def open_lease(desk: At, principal: LoginNode, body: LeaseIn) -> Response:
    """A login node asks whether a session may begin. Asked again for the same claim, it may."""
    refused = login_leases.open_lease(desk.store, desk.rules, body.asked())
    desk.metrics.login_answered("lease", refused)
    if refused is None:
        return written(LeaseOut(granted=True, message="", sessions=[]))
    found = login_leases.sessions(desk.store, {body.user})
    counted = {each.id for each in refused.sessions}
    told = [SessionOut.of(each) for each in found if each.id in counted]
    return written(LeaseOut(granted=False, message=refused.message, sessions=told))


@router.put("/nodes/{node}/report", response_model=ReportOut, responses=problems(401, 403, 409, 422))
async def put_report(desk: At, principal: LoginNode, node: NodeName, body: ReportIn) -> Response:
    """What a login node's agent tells every few seconds: how it is, and who is really on it.

    409: another agent, which is the one that is heard, tells of a node of this name: there are two
        machines.
    """
    answer = login_reports.take(
        desk.store, desk.context.engine, desk.rules, body.report(node), principal.name
    )
    if answer.other is not None:
        raise ProblemError(HTTPStatus.CONFLICT, two_of_one_name(node, answer.other))
    told = ReportOut(
        taken=answer.taken,
        lease_seconds=desk.rules.lease_seconds,
        draining=answer.draining,
        why=answer.why,
        end=list(answer.end),
        tell=dict(answer.tell),
        drained=answer.drained,
    )
    return written(told)


def written(answer: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer as it goes over the wire, for what is asked all the time.

    FastAPI would carry it to a thread of its own, check it a second time and write it there.
    """
    return Response(answer.model_dump_json(), status, media_type="application/json")


def told_of(refused: Refused, people: People, user: str) -> str:
    """What who asks for somebody hears of their refusal: where they are only who may see their sessions."""
    if people.may_end(user):
        return refused.message
    head = refused.message.partition("\n")[0].rstrip(":.")
    return (
        f"{head}. Your token does not show which {user} has: one of {user}'s own does (hp-login --sessions), "
        "and so does plain ssh to a login node."
    )


def forbidden_for(user: str) -> ProblemError:
    """Who asks may not ask for this person."""
    return ProblemError(
        HTTPStatus.FORBIDDEN,
        f"Your token may not ask for {user}: only for yourself and your account's people.",
    )
