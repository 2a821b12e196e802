"""Hypothesis strategies: account trees over a few names, so that any two of them overlap."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hpctools.conf import Account, AccountTree, Association, Qos
from hpctools.conf.accounts import ROOT, without_inherited
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS

ACCOUNTS = ["bio", "chem", "geo", "lab-a", "lab-b", "lab-c"]
USERS = ["ada", "bob", "eve", "kim", "zoe"]
QOS = ["high", "low", "usual", "spare"]

NUMBER = st.sampled_from(["", "0", "7", "50"])
TRES = st.sampled_from(["", "cpu=4", "cpu=9,gres/gpu=2", "gres/gpu=3,mem=1024"])
TIME = st.sampled_from(["", "3600", "172800"])


@st.composite
def trees(draw: st.DrawFn) -> AccountTree:
    """A whole tree: accounts at any depth, people with a default among their accounts, QoS in an order."""
    qos = draw(st.lists(st.sampled_from(QOS), min_size=1, max_size=3, unique=True))
    names = draw(st.lists(st.sampled_from(ACCOUNTS), min_size=1, max_size=5, unique=True))
    accounts = [
        draw(_account(name, [ROOT, *names[:place]], qos, _old(names, ACCOUNTS)))
        for place, name in enumerate(names)
    ]
    people = draw(
        st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(names)), max_size=8, unique=True)
    )
    held: dict[str, list[str]] = {}
    for user, account in people:
        held.setdefault(user, []).append(account)
    coordinators = (
        {
            account: tuple(sorted(users))
            for account, users in draw(
                st.dictionaries(st.sampled_from(names), st.sets(st.sampled_from(sorted(held)), max_size=2))
            ).items()
        }
        if held
        else {}
    )
    return AccountTree(
        clusters=("uni",),
        qos=tuple(draw(_qos(name, qos[:place], _old(qos, QOS))) for place, name in enumerate(qos)),
        accounts=without_inherited(
            [
                Account(a.name, a.parent, a.settings, coordinators.get(a.name, ()), a.renamed_from)
                for a in accounts
            ]
        ),
        default_accounts={user: draw(st.sampled_from(accounts)) for user, accounts in held.items()},
        associations=tuple(
            Association(user, account, draw(_settings("1"))) for user, account in people
        ),
    )  # fmt: skip


def _old(names: list[str], pool: list[str]) -> list[str]:
    return ["", *(name for name in pool if name not in names)]


def _settings(share: str) -> st.SearchStrategy[dict[str, str]]:
    drawn = st.fixed_dictionaries(
        {"GrpTRES": TRES, "GrpTRESMins": TRES, "MaxJobs": NUMBER, "MaxWall": TIME, "GrpSubmitJobs": NUMBER}
    )
    return drawn.map(lambda some: {**dict.fromkeys(ASSOCIATION_SETTINGS, ""), "Fairshare": share, **some})


@st.composite
def _account(draw: st.DrawFn, name: str, parents: list[str], qos: list[str], old: list[str]) -> Account:
    allowed = draw(st.lists(st.sampled_from(qos), min_size=1, unique=True))
    settings: dict[str, Any] = draw(_settings(draw(st.sampled_from(["1", "40"]))))
    settings |= {"QOS": ",".join(sorted(allowed)), "DefaultQOS": allowed[0]}
    return Account(name, draw(st.sampled_from(parents)), settings, (), draw(st.sampled_from(old)))


@st.composite
def _qos(draw: st.DrawFn, name: str, below: list[str], old: list[str]) -> Qos:
    preempted = draw(st.lists(st.sampled_from(below), unique=True)) if below else []
    settings = {
        **dict.fromkeys(QOS_SETTINGS, ""),
        "Priority": draw(st.sampled_from(["0", "10"])),
        "Preempt": ",".join(sorted(preempted)),
        "PreemptMode": draw(st.sampled_from(["cluster", "requeue"])),
        "GraceTime": draw(st.sampled_from(["0", "68"])),
        "UsageFactor": "1.000000",
        "MaxWall": draw(TIME),
        "MaxTRESPerUser": draw(TRES),
        "Flags": draw(st.sampled_from(["", "DenyOnLimit", "DenyOnLimit,NoReserve"])),
    }
    return Qos(name, settings, draw(st.sampled_from(old)))
