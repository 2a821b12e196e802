"""The page of login nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from api.deps import Ctx, Site, Visitor
from api.pages.frame import frame
from api.pages.login_nodes import PATH, login_nodes_page
from api.routers.login import NodeFilter, Rule, Store
from api.services.login_overview import read_overview
from api.services.login_people import People

router = APIRouter(include_in_schema=False)

_PAGE = 100

After = Annotated[int, Query(ge=0, lt=2**53)]


@router.get(PATH)
def show_login_nodes(
    context: Ctx, site: Site, visitor: Visitor, rules: Rule, store: Store,
    node: NodeFilter = None, after: After = 0,
) -> HTMLResponse:  # fmt: skip
    """Nodes and limits for everybody; sessions of those whom the visitor may see."""
    people, node = People(visitor, site, rules), node or None
    shown = read_overview(store, context.engine, people, node, after, _PAGE)
    return HTMLResponse(login_nodes_page(frame(site, visitor, PATH), shown, rules, context.clock(), node))
