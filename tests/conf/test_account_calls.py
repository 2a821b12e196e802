"""The calls of an account sync: what is told at the same time, and what a refusal stops."""

import pytest

from hpctools.conf import AccountChange, Call, Kept
from hpctools.conf.slurmdbd import Slurmdbd
from hpctools.errors import CommandError, HpctoolsError, UnreachableError


class Sacctmgr:
    """Answers calls from a list: text, or an error to raise."""

    def __init__(self, *answers: str | HpctoolsError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, argv: tuple[str, ...], stdin: str) -> str:
        self.asked.append(tuple(argv[2:]))
        answer = self.answers.pop(0) if self.answers else ""
        if isinstance(answer, HpctoolsError):
            raise answer
        return answer


def refusal(said: str) -> CommandError:
    return CommandError("sacctmgr failed", argv=("sacctmgr",), code=1, stderr=said)


CALLS = (Call(("add", "cluster", "uni")), Call(("add", "qos", "name=high")), Call(("add", "qos", "name=low")))


def test_a_call_that_fails_says_how_far_it_came() -> None:
    sacctmgr = Sacctmgr("", UnreachableError("slurmdbd does not answer", "start it"))
    with pytest.raises(UnreachableError) as caught:
        Slurmdbd("uni", sacctmgr).carry_out(CALLS)
    told = "while telling slurmdbd: add qos name=high; 1 of 3 calls were done"
    assert str(caught.value) == f"slurmdbd does not answer, {told}; start it"
    assert len(sacctmgr.asked) == 2


def test_a_job_that_came_in_between_keeps_only_its_own() -> None:
    rows = tuple(AccountChange("association", "remove", name, "lab", late=True) for name in ("ada", "bob"))
    call = Call(("delete", "user", "where", "name=ada,bob", "account=lab", "cluster=uni"), changes=rows)
    active = refusal(" Error with request: Job(s) active, cancel job(s) before remove")
    sacctmgr = Sacctmgr(active, "", active)
    kept = Slurmdbd("uni", sacctmgr).carry_out((call,))
    assert kept == (Kept("association", "bob", "lab", "a job has come in between"),)
    assert [argv[3] for argv in sacctmgr.asked] == ["name=ada,bob", "name=ada", "name=bob"]


@pytest.mark.parametrize("said", [" Nothing new added.", " Nothing deleted", " Nothing removed"])
def test_what_somebody_else_did_meanwhile_is_done(said: str) -> None:
    assert Slurmdbd("uni", Sacctmgr(refusal(said))).carry_out(CALLS) == ()


def test_any_other_refusal_is_an_error() -> None:
    with pytest.raises(CommandError, match="nothing was done"):
        Slurmdbd("uni", Sacctmgr(refusal("Unknown option"))).carry_out(CALLS)


def test_after_a_call_that_failed_nothing_more_is_told() -> None:
    sacctmgr = Sacctmgr("", refusal("Unknown option"), "", "")
    with pytest.raises(CommandError):
        Slurmdbd("uni", sacctmgr).carry_out((*CALLS, *CALLS))
    assert len(sacctmgr.asked) == 2


def test_coordinators_are_told_at_the_same_time_and_all_of_them() -> None:
    calls = tuple(
        Call(("add", "coordinator", f"account=a{n}", "names=ada"), together=True) for n in range(30)
    )
    sacctmgr = Sacctmgr()
    assert Slurmdbd("uni", sacctmgr).carry_out((*CALLS, *calls)) == ()
    assert [argv[:2] for argv in sacctmgr.asked[:3]] == [call.argv[:2] for call in CALLS]
    assert sorted(sacctmgr.asked[3:]) == sorted(call.argv for call in calls)


def test_one_of_those_at_the_same_time_fails() -> None:
    calls = tuple(Call(("add", "coordinator", f"account=a{n}", "names=ada"), together=True) for n in range(3))
    with pytest.raises(CommandError, match="while telling slurmdbd: add coordinator account=a"):
        Slurmdbd("uni", Sacctmgr("", refusal("no"), "")).carry_out(calls)
