"""What must hold between the parts of a site: names that exist, and names that are told apart.

Each rule walks the document and yields findings. Rules look at the document, not at the models, so that they
also speak when another part of the file is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from decimal import Decimal, InvalidOperation

from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.site.cursor import Cursor
from hpctools.site.document import Document
from hpctools.site.findings import Finding, one_of

Rule = Callable[[Cursor], Iterator[Finding]]


def check(document: Document) -> list[Finding]:
    """Apply every rule to a document."""
    root = Cursor(document, document.data)
    return [finding for rule in RULES for finding in rule(root)]


def _owners(root: Cursor) -> Iterator[Cursor]:
    """Departments and labs, each before the labs below it."""
    for department in root.at("departments").each():
        yield from _with_labs(department)


def _with_labs(owner: Cursor) -> Iterator[Cursor]:
    yield owner
    for lab in owner.at("labs").each():
        yield from _with_labs(lab)


def _partitions(root: Cursor) -> Iterator[Cursor]:
    yield from (department.at("partition") for department in root.at("departments").each())
    yield from root.at("partitions").each()


def _groups(root: Cursor, role: str) -> list[str]:
    groups = root.at("node_groups").each()
    return [g.at("name").text or "" for g in groups if (g.at("role").value or "compute") == role]


def _tiers(root: Cursor) -> list[str]:
    return [tier.key for tier in root.at("tiers").each()]


def _repeated(names: Iterable[Cursor], what: str) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for name in names:
        if name.text is None:
            continue
        if name.text in first:
            yield name.finding(f"each {what} once (first on line {first[name.text]})")
        else:
            first[name.text] = name.document.line(name.location)


def distinct_names(root: Cursor) -> Iterator[Finding]:
    """Node groups, accounts and partitions each have a name of their own."""
    yield from _repeated((group.at("name") for group in root.at("node_groups").each()), "node group")
    names = (owner.at("name") for owner in _owners(root))
    yield from _repeated(names, "account (departments and labs share one name space)")
    yield from _repeated(root.at("cluster", "controllers").each(), "controller")
    yield from _repeated(_partition_names(root), "partition")


def _partition_names(root: Cursor) -> Iterator[Cursor]:
    for department in root.at("departments").each():
        own = department.at("partition", "name")
        if department.at("partition").value is not None:
            # A partition without a name has the department's; departments with one name are found above.
            yield own if own.text is not None else department.at("name")
    yield from (partition.at("name") for partition in root.at("partitions").each())


def distinct_entries(root: Cursor) -> Iterator[Finding]:
    """Lists of references name each thing once."""
    for partition in _partitions(root):
        yield from _repeated(partition.at("node_groups").each(), "node group")
    for partition in root.at("partitions").each():
        yield from _repeated(partition.at("departments").each(), "department")
    for place in (*root.at("departments").each(), *root.at("partitions").each()):
        yield from _repeated(place.at("tiers").each(), "tier")
    for owner in _owners(root):
        yield from _repeated(owner.at("members").each(), "member")
        yield from _repeated(owner.at("members_from").each(), "group of the directory")
    for group in root.at("node_groups").each():
        yield from _repeated(group.at("features").each(), "feature")
    for tier in root.at("tiers").each():
        yield from _repeated(tier.at("preempts").each(), "tier")


def renames_are_clear(root: Cursor) -> Iterator[Finding]:
    """An old name is a name no more, and becomes one new name."""
    accounts = [owner.at("name").text for owner in _owners(root)]
    yield from _renames((owner.at("renamed_from") for owner in _owners(root)), accounts, "account")
    yield from _renames((tier.at("renamed_from") for tier in root.at("tiers").each()), _tiers(root), "tier")


def _renames(places: Iterable[Cursor], known: Container[str | None], what: str) -> Iterator[Finding]:
    old = [place for place in places if place.text is not None]
    yield from _repeated(old, f"former {what}")
    for place in old:
        if place.text in known:
            yield place.finding(f"a name that no {what} of this site has any more")


def partitions_have_nodes(root: Cursor) -> Iterator[Finding]:
    """The node groups of partitions, switches and blocks exist and run jobs."""
    known, others = _groups(root, "compute"), _groups(root, "login")
    topology = root.at("cluster", "topology")
    for place in (*_partitions(root), *topology.at("switches").each(), *topology.at("blocks").each()):
        for group in place.at("node_groups").each():
            if group.text is not None and group.text not in known:
                login = " (login nodes run no jobs)" if group.text in others else ""
                yield group.finding(one_of(known, group.text) + login)


def partitions_have_departments(root: Cursor) -> Iterator[Finding]:
    """The departments that share a partition exist."""
    known = [department.at("name").text or "" for department in root.at("departments").each()]
    for partition in root.at("partitions").each():
        for department in partition.at("departments").each():
            if department.text is not None and department.text not in known:
                yield department.finding(one_of(known, department.text))


def limits_are_of_members(root: Cursor) -> Iterator[Finding]:
    """Whoever has limits of their own in an account works there, or may come to by the directory."""
    for owner in _owners(root):
        if _fed(owner):
            continue
        people = [place.text or "" for place in (owner.at("supervisor"), *owner.at("members").each())]
        for limits in owner.at("members_limits").each():
            if limits.key not in people:
                known = [name for name in people if name]
                yield limits.finding(
                    f"somebody who works there: {one_of(known, limits.key)}", repr(limits.key)
                )


def login_limits_are_of_departments(root: Cursor) -> Iterator[Finding]:
    """Sessions are limited for departments that the site has."""
    known = [department.at("name").text or "" for department in root.at("departments").each()]
    for limit in root.at("login").at("department_sessions").each():
        if limit.key not in known:
            yield limit.finding(one_of(known, limit.key), repr(limit.key))


def sessions_are_asked_of_one(root: Cursor) -> Iterator[Finding]:
    """Either a program or the agent is asked before a session."""
    access = root.at("access").at("login")
    hook, socket = access.at("session_hook"), access.at("agent_socket")
    if hook.text and socket.text:
        yield socket.finding("either session_hook or agent_socket")


def _fed(owner: Cursor) -> bool:
    """Whether the directory says who works there."""
    return any(True for _ in owner.at("members_from").each())


def directory_is_stated(root: Cursor) -> Iterator[Finding]:
    """Groups have a directory to be in, and a directory has somebody who may log in."""
    fed = [owner.at("members_from") for owner in _owners(root) if _fed(owner)]
    identity = root.at("identity")
    if identity.value is None:
        for place in fed:
            yield place.finding("the section `identity`, which says where they are", "groups")
        return
    stated = any(True for _ in identity.at("login_groups").each()) or identity.at("login_filter").text
    if not fed and not stated:
        yield identity.finding("login_groups or login_filter: who may log in", "nobody who may log in")


def one_default_partition(root: Cursor) -> Iterator[Finding]:
    """At most one partition is the default."""
    defaults = [place.at("default") for place in _partitions(root) if place.at("default").value is True]
    for place in defaults[1:]:
        first = place.document.line(defaults[0].location)
        yield place.finding(f"default: true in at most one partition (first on line {first})")


def switches_form_trees(root: Cursor) -> Iterator[Finding]:
    """Switches and blocks have names of their own; a switch is below one other at most, without circles."""
    topology = root.at("cluster", "topology")
    switches = list(topology.at("switches").each())
    yield from _repeated((switch.at("name") for switch in switches), "switch")
    yield from _repeated((block.at("name") for block in topology.at("blocks").each()), "block")
    below = [place for switch in switches for place in switch.at("switches").each()]
    known = {switch.at("name").text or "" for switch in switches}
    for place in below:
        if place.text is not None and place.text not in known:
            yield place.finding(one_of(sorted(known), place.text))
    yield from _repeated(below, "switch below another")
    yield from _circles(switches)


def _circles(switches: list[Cursor]) -> Iterator[Finding]:
    edges = {
        switch.at("name").text or "": [place.text for place in switch.at("switches").each() if place.text]
        for switch in switches
    }
    for switch in switches:
        name = switch.at("name").text or ""
        circle = _path_back(edges, name)
        if circle and name == min(circle):
            yield switch.at("switches").finding("switches without circles", " above ".join((*circle, name)))


def tiers_exist(root: Cursor) -> Iterator[Finding]:
    """Tiers that are spoken of are declared."""
    known = _tiers(root)
    for place in _tier_references(root):
        if place.text is not None and place.text not in known:
            yield place.finding(one_of(known, place.text))


def _tier_references(root: Cursor) -> Iterator[Cursor]:
    for place in (*root.at("departments").each(), *root.at("partitions").each()):
        yield from place.at("tiers").each()
    for tier in root.at("tiers").each():
        yield from tier.at("preempts").each()
    for template in root.at("templates").each():
        yield template.at("tier")
    for owner in _owners(root):
        yield owner.at("budget", "enforce", "tier")


def parts_fit_into_budgets(root: Cursor) -> Iterator[Finding]:
    """The budgets of labs are parts of the one above, unless that allows more."""
    for owner in _owners(root):
        budget = owner.at("budget")
        whole = _amount(budget)
        parts = [lab.at("budget") for lab in owner.at("labs").each() if _amount(lab.at("budget")) is not None]
        if whole is None or not parts or budget.at("over_commit").value is True:
            continue
        unlike = [part for part in parts if _periods(part) != _periods(budget)]
        for part in unlike:
            yield part.finding(f"the same currency and periods as the budget of {owner.at('name').text}")
        given = sum((_amount(part) or Decimal(0) for part in parts), Decimal(0))
        if not unlike and given > whole:
            expected = f"at least {given:f}, what its labs have together, or over_commit: true"
            yield budget.at("amount").finding(expected)


def _amount(budget: Cursor) -> Decimal | None:
    try:
        found = Decimal(budget.at("amount").text or "-")
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _periods(budget: Cursor) -> tuple[object, ...]:
    stated = tuple(budget.at(key).value for key in ("starts", "first", "last"))
    return (budget.at("currency").value or "USD", budget.at("period").value or "monthly", *stated)


def one_default_tier(root: Cursor) -> Iterator[Finding]:
    """Exactly one tier is the default, which all may use; at most one is for replicas, by its name."""
    tiers = list(root.at("tiers").each())
    defaults = [tier.key for tier in tiers if tier.at("default").value is True]
    replicas = [tier.key for tier in tiers if tier.at("for_replicas").value is True]
    if tiers and len(defaults) != 1:
        found = f"{len(defaults)} default tiers" + (f" ({', '.join(defaults)})" if defaults else "")
        yield root.at("tiers").finding("default: true in exactly one tier", found)
    if len(replicas) > 1:
        yield root.at("tiers").finding("for_replicas: true in at most one tier", ", ".join(replicas))
    elif replicas and replicas != [ELASTIC_QOS]:
        tier = root.at("tiers").at(replicas[0])
        yield tier.at("for_replicas").finding(
            f"it in a tier named {ELASTIC_QOS}: hp-submit gives that QoS to replica jobs "
            f"(where accounts have this one: renamed_from: {replicas[0]})",
            f"it in tier {replicas[0]!r}",
        )
    yield from _default_is_allowed(root, defaults)


def _default_is_allowed(root: Cursor, defaults: list[str]) -> Iterator[Finding]:
    for department in root.at("departments").each():
        allowed = department.at("tiers")
        if len(defaults) == 1 and isinstance(allowed.value, tuple) and defaults[0] not in allowed.value:
            yield allowed.finding(f"the default tier {defaults[0]!r} among them", "tiers without the default")


def preemption_has_no_circle(root: Cursor) -> Iterator[Finding]:
    """No tier yields to itself, directly or through others."""
    edges = {
        tier.key: [p.text for p in tier.at("preempts").each() if p.text] for tier in root.at("tiers").each()
    }
    for tier in root.at("tiers").each():
        circle = _path_back(edges, tier.key)
        # Told once, at the tier whose name comes first.
        if circle and tier.key == min(circle):
            text = " preempts ".join((*circle, tier.key))
            yield tier.at("preempts").finding("an order without circles", text)


def _path_back(edges: dict[str, list[str]], start: str) -> list[str] | None:
    """The tiers on a shortest way from `start` back to itself."""
    ways, seen = [[start]], {start}
    for way in ways:
        for below in edges.get(way[-1], []):
            if below == start:
                return way
            if below not in seen:
                seen.add(below)
                ways.append([*way, below])
    return None


def capacity_exists(root: Cursor) -> Iterator[Finding]:
    """A template names capacity that some compute group has."""
    groups = [g for g in root.at("node_groups").each() if g.at("role").value != "login"]
    known = sorted({text for g in groups if (text := g.at("capacity").text)})
    for template in root.at("templates").each():
        for capacity in template.at("capacity").each():
            if capacity.text in ("reserved", "on-demand", "spot") and capacity.text not in known:
                yield capacity.finding(f"what a node group has: {one_of(known, capacity.text)}")


def default_accounts_are_clear(root: Cursor) -> Iterator[Finding]:
    """Whoever has several accounts has one named as default, and defaults name accounts that a person has."""
    places = _places_of_users(root)
    fed = {owner.at("name").text for owner in _owners(root) if _fed(owner)}
    chosen = root.at("default_accounts")
    for user, held in places.items():
        accounts = list(dict.fromkeys(account for account, _ in held))
        if len(accounts) > 1 and chosen.at(user).value is None:
            found = f"{user!r} in the accounts {', '.join(accounts)}"
            yield held[-1][1].finding(f"an entry {user!r} in default_accounts that chooses one", found)
    for choice in chosen.each():
        accounts = [account for account, _ in places.get(choice.key, [])]
        if choice.text in fed:
            continue  # the directory may say so
        if not accounts:
            yield choice.finding("somebody who works in a department or lab", repr(choice.key))
        elif choice.text is not None and choice.text not in accounts:
            yield choice.finding(f"an account of {choice.key!r}: {one_of(accounts, choice.text)}")


def _places_of_users(root: Cursor) -> dict[str, list[tuple[str, Cursor]]]:
    """Each person's accounts, with the place that says so."""
    places: dict[str, list[tuple[str, Cursor]]] = {}
    for owner in _owners(root):
        account = owner.at("name").text
        for place in (owner.at("supervisor"), *owner.at("members").each()):
            if account is not None and place.text is not None:
                places.setdefault(place.text, []).append((account, place))
    return places


def hosts_are_told_apart(root: Cursor) -> Iterator[Finding]:
    """No controller is called like the nodes of a group; `places.py` looks at names that a group states."""
    for group in root.at("node_groups").each():
        prefix = f"{group.at('name').text}-"
        hosts = root.at("cluster", "controllers").each() if group.at("nodes").value is None else ()
        for host in hosts:
            if host.text and host.text.startswith(prefix) and host.text[len(prefix) :].isdecimal():
                yield host.finding(f"a name that is not a node's of group {group.at('name').text!r}")


def one_currency(root: Cursor) -> Iterator[Finding]:
    """All budgets are in one currency: a bill has one, and nothing here converts."""
    currencies = [owner.at("budget", "currency") for owner in _owners(root)]
    stated = [place for place in currencies if place.text is not None]
    for place in stated[1:]:
        if place.text != stated[0].text:
            yield place.finding(f"{stated[0].text}, as in the other budgets")


RULES: tuple[Rule, ...] = (
    distinct_names,
    distinct_entries,
    renames_are_clear,
    partitions_have_nodes,
    partitions_have_departments,
    limits_are_of_members,
    directory_is_stated,
    one_default_partition,
    switches_form_trees,
    tiers_exist,
    one_default_tier,
    preemption_has_no_circle,
    capacity_exists,
    default_accounts_are_clear,
    login_limits_are_of_departments,
    sessions_are_asked_of_one,
    hosts_are_told_apart,
    one_currency,
    parts_fit_into_budgets,
)
