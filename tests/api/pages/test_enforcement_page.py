"""The page of enforcement: what is kept to its budget, since when, why, and what ends it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

import pytest

from api.services.budgets import Change
from api.services.enforcement import apply
from hpctools.budget.enforcement import Live, PendingJob
from hpctools.errors import CommandError


def words(html: str) -> str:
    body = html.split("</header>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@dataclass
class Cluster:
    """A cluster that does what it is told."""

    limits: dict[str, dict[str, str]] = field(default_factory=dict)
    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    jobs: dict[int, PendingJob] = field(default_factory=dict)
    away: bool = False

    def live(self, accounts: Iterable[str]) -> Live:
        if self.away:
            raise CommandError("sacctmgr ended with 1", argv=("sacctmgr",), code=1)
        return Live(self.limits, self.marks, tuple(self.jobs.values()))

    def set_limits(
        self, account: str, changes: Mapping[str, tuple[str, str]], mark: Mapping[str, str]
    ) -> None:
        self.limits.setdefault(account, {}).update({key: after for key, (_, after) in changes.items()})
        self.marks[account] = dict(mark)

    def hold(self, job: int, account: str) -> None:
        self.jobs[job] = replace(self.jobs[job], held=True, marked=True)

    def release(self, job: int) -> None:
        self.jobs[job] = replace(self.jobs[job], held=False, marked=False)

    def set_qos(self, job: int, qos: str) -> None:
        raise AssertionError("no tier is lowered here")


@pytest.fixture
def cluster(overspent: Any) -> Cluster:
    cluster = Cluster({"nlp": {"GrpSubmitJobs": "20"}}, {}, {7: PendingJob(7, 1, "nlp-lab-a", "medium")})
    overspent.app.state.limits_of = lambda name: cluster
    return cluster


def test_before_anything_is_taken(overspent: Any, cluster: Cluster) -> None:
    page = words(overspent.browser("nlp").get("/enforcement").text)
    assert (
        "Natural Language Processing nlp 406.1 % $20,305.57 of $5,000.00 "
        "no new jobs, waiting ones are held from 100 % over; taken at the next look "
        "Approve more or another budget, or the next period from 1 December 2026. "
        "What was taken is given back at the next look." in page.replace("\xa0", " ")
    ), page
    assert "Nothing is taken: Slurm is as it was set." in page
    assert "Ask Slurm" not in page


def test_what_is_taken_and_given_back(overspent: Any, cluster: Cluster, now: int) -> None:
    apply(overspent.engine, overspent.site, cluster, Change("the service", now))
    page = words(overspent.browser("nlp").get("/enforcement").text)
    assert "kept to its budget a limit of the account, 1 job held, since 21 November 2026, 12:00 UTC" in page
    assert "GrpSubmitJobs of nlp nlp 20 0 21 November 2026, 12:00 UTC by the service" in page
    assert "job 7 (hold) nlp waiting held 21 November 2026, 12:00 UTC by the service" in page
    browser = overspent.browser("nlp")
    rows = list(csv.DictReader(StringIO(browser.get("/enforcement?format=csv").text, newline="")))
    assert [(row["subject"], row["limit"], row["before"], row["after"], row["state"]) for row in rows] == [
        ("7", "", "", "", "held"),
        ("nlp", "GrpSubmitJobs", "20", "0", "held"),
    ]
    other = words(overspent.browser("cv").get("/enforcement").text)
    assert "GrpSubmitJobs" not in other
    assert "No budget that you may see has a policy: nothing is enforced." in other


def test_what_would_be_done_is_asked_of_slurm_on_request(overspent: Any, cluster: Cluster) -> None:
    enforcer = overspent.browser("root", "enforce")
    assert "Ask Slurm" in words(enforcer.get("/enforcement").text)
    page = words(enforcer.get("/enforcement?plan=now").text)
    assert "GrpSubmitJobs of nlp take nlp 20 0 20305" in page
    assert "job 7 (hold) take nlp waiting held" in page
    assert (cluster.limits["nlp"], cluster.jobs[7].held) == ({"GrpSubmitJobs": "20"}, False)
    cluster.away = True
    gone = enforcer.get("/enforcement?plan=now")
    assert gone.status_code == 200
    assert "Slurm does not answer: sacctmgr ended with 1." in words(gone.text)


def test_who_may_not_enforce_does_not_have_slurm_asked(overspent: Any, cluster: Cluster) -> None:
    cluster.away = True
    for account in ("nlp", "root"):
        assert overspent.browser(account).get("/enforcement").status_code == 200
        assert overspent.browser(account).get("/enforcement?plan=now").status_code == 403
