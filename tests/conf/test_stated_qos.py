"""QoS that settings speak of: plan and pruning see the same ones."""

from __future__ import annotations

from hpctools.conf import Account, AccountTree, Association, Qos
from hpctools.conf.stated_qos import stated_qos


def test_tiers_accounts_and_people_are_all_looked_at() -> None:
    tree = AccountTree(
        clusters=("uni",),
        accounts=(Account("lab", "root", {"QOS": "+night,-low"}),),
        associations=(Association("anna", "lab", {"DefaultQOS": "day"}),),
        default_accounts={},
        qos=(Qos("high", {"Preempt": "low"}),),
    )
    assert [each for each in stated_qos(tree) if each[2]] == [
        ("tier high", "Preempt", {"low"}),
        ("account lab", "QOS", {"night", "low"}),
        ("anna in account lab", "DefaultQOS", {"day"}),
    ]
