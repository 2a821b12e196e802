"""What a budget may say, and that the parts of one are no more than the whole."""

from __future__ import annotations

import pytest

from hpctools.errors import SiteError
from hpctools.site import loads
from hpctools.site.budget import Budget

SITE = """\
cluster: {{name: uni, slurm: "24.11", controllers: [ctl-1]}}
node_groups: [{{name: cpu, count: 2, hardware: {{sockets: 1, cores_per_socket: 8, memory_mib: 16000}}}}]
departments:
  - name: bio
    partition: {{node_groups: [cpu]}}
    budget: {department}
    labs:
      - {{name: bio-a, budget: {a}}}
      - {{name: bio-b, budget: {b}}}
tiers: {{normal: {{priority: 100, default: true}}}}
"""


def read(department: str, a: str = '{amount: "60.00"}', b: str = '{amount: "40.00"}') -> Budget:
    found = loads(SITE.format(department=department, a=a, b=b)).departments[0].budget
    assert found is not None
    return found


def test_parts_may_be_as_much_as_the_whole() -> None:
    assert read('{amount: "100"}').period == "monthly"


def test_parts_that_are_more_than_the_whole_are_a_finding() -> None:
    with pytest.raises(SiteError, match=r"at least 100\.00, what its labs have together"):
        read('{amount: "99.99"}')
    assert read('{amount: "99.99", over_commit: true}').over_commit


def test_parts_are_for_the_same_periods() -> None:
    with pytest.raises(SiteError, match="the same currency and periods as the budget of bio"):
        read('{amount: "100", period: yearly}')


def test_all_budgets_are_in_one_currency() -> None:
    with pytest.raises(SiteError, match="USD, as in the other budgets"):
        read('{amount: "100", currency: USD}', a='{amount: "1", currency: EUR}')


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("period: terms, starts: [10-01]", "two or more"),
        ("period: terms, starts: [10-01, 04-01]", "rising days"),
        ("starts: [10-01]", "as many days"),
        ("period: yearly, starts: [02-29]", "every year"),
        ("period: quarterly, starts: [01-31]", "every month"),
        ("period: once", "first and last"),
        ("period: once, first: 2026-10-01, last: 2026-09-30", "first before last"),
        ("period: once, first: 2026-02-30, last: 2026-09-30", "a day such as"),
        ("first: 2026-10-01, last: 2026-10-30", "first and last"),
        ('carry_at_most: "5"', "carry_over beside"),
        ("alert_at: [90, 50]", "rising percentages in alert_at"),
        ("enforce: {policy: lower-tier}", "tier beside policy"),
        ("enforce: {policy: block, tier: normal}", "tier beside policy"),
        ("enforce: {policy: lower-tier, tier: nope}", "normal"),
        ("notify: {webhook: 'http://x.example/'}", "webhook"),
        ("notify: {webhook: 'https://user@x.example/'}", "webhook"),
        ("notify: {mail: ['a b@x.example']}", "mail"),
        ("notify: {sns: budgets}", "sns"),
    ],
)
def test_what_cannot_be_meant_is_a_finding(stated: str, expected: str) -> None:
    with pytest.raises(SiteError, match=expected):
        read(f'{{amount: "100", over_commit: true, {stated}}}')
