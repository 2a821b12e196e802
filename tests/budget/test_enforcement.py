from __future__ import annotations

from dataclasses import replace

from hpctools.budget.enforcement import Live, Ours, PendingJob, Step, Wish, plan, undo

BELOW = {"nlp": {"nlp", "lab-a"}, "lab-a": {"lab-a"}, "cv": {"cv"}}
JOB = PendingJob(7, 1000, "lab-a", "high")
HELD = replace(JOB, held=True, marked=True)
OURS = Ours("hold", 7, 1000, "nlp")
BLOCK, HOLD = Wish("nlp", "block"), Wish("nlp", "hold")
LOWER = Wish("nlp", "lower-tier", "low")


def live(limit: str = "", mark: str | None = None, *pending: PendingJob) -> Live:
    marks = {} if mark is None else {"nlp": {"GrpSubmitJobs": mark}}
    return Live({"nlp": {"GrpSubmitJobs": limit}}, marks, pending)


def steps(wish: Wish | None, state: Live, *ours: Ours) -> list[tuple[str, str, str, str, str]]:
    found = plan([wish] if wish else [], state, ours, BELOW.__getitem__)
    return [(each.action, each.kind, each.subject, each.before, each.after) for each in found]


def test_a_block_takes_the_limit_and_leaves_jobs_alone() -> None:
    assert steps(BLOCK, live("20", None, JOB)) == [("take", "limit", "nlp", "20", "0")]
    assert steps(BLOCK, live("0", "20", JOB)) == []


def test_what_was_before_comes_back() -> None:
    assert steps(None, live("0", "20")) == [("give", "limit", "nlp", "0", "20")]
    assert steps(None, live("0", "")) == [("give", "limit", "nlp", "0", "")]


def test_a_limit_that_somebody_set_by_hand_is_not_ours() -> None:
    """Neither a 0 that was there before, nor another number that came after."""
    assert steps(BLOCK, live("0")) == []
    assert steps(None, live("0")) == []
    assert steps(None, live("5", "20")) == [("forget", "limit", "nlp", "5", "5")]
    assert steps(BLOCK, live("5", "20")) == []


def test_a_hold_takes_pending_jobs_of_the_accounts_below_too() -> None:
    other = PendingJob(8, 1000, "cv", "high")
    assert steps(HOLD, live("0", "", JOB, other)) == [("take", "hold", "7", "", "")]


def test_jobs_that_were_held_before_are_nobodys_to_release() -> None:
    state = live("0", "", replace(JOB, held=True))
    assert steps(HOLD, state) == []
    assert steps(None, replace(state, marks={})) == []


def test_only_ours_are_released_and_only_as_we_left_them() -> None:
    assert steps(None, live("", None, HELD), OURS) == [("give", "hold", "7", "", "")]
    assert steps(None, live("", None, replace(HELD, marked=False)), OURS) == [("forget", "hold", "7", "", "")]
    assert steps(None, live("", None, JOB), OURS) == [("forget", "hold", "7", "", "")]
    assert steps(None, live(), OURS) == [("forget", "hold", "7", "", "")]


def test_a_job_that_an_operator_let_go_is_not_held_again() -> None:
    assert steps(HOLD, live("0", "", JOB), OURS) == [("forget", "hold", "7", "", "")]
    assert steps(HOLD, live("0", "", JOB), replace(OURS, state="left")) == []


def test_an_id_that_is_used_again_is_another_job() -> None:
    again = replace(JOB, submitted=2000)
    assert steps(HOLD, live("0", "", again), OURS) == [
        ("take", "hold", "7", "", ""),
        ("forget", "hold", "7", "", ""),
    ]


def test_who_was_killed_in_the_middle_goes_on() -> None:
    begun = replace(OURS, state="begun")
    assert steps(HOLD, live("0", "", JOB), begun) == [("take", "hold", "7", "", "")]
    assert steps(HOLD, live("0", "", HELD), begun) == []
    assert steps(None, live("", None, HELD), begun) == [("give", "hold", "7", "", "")]


def test_a_lower_tier_changes_limits_and_pending_jobs_and_back() -> None:
    before = Live({"nlp": {"QOS": "high,low", "DefaultQOS": "high"}}, {}, (JOB,))
    assert steps(LOWER, before) == [
        ("take", "limit", "nlp", "high,low", "low"),
        ("take", "limit", "nlp", "high", "low"),
        ("take", "tier", "7", "high", "low"),
    ]
    marks = {"nlp": {"QOS": "high,low", "DefaultQOS": "high"}}
    lowered = Live({"nlp": {"QOS": "low", "DefaultQOS": "low"}}, marks, (replace(JOB, qos="low"),))
    tier = Ours("tier", 7, 1000, "nlp", "high", "low")
    assert steps(LOWER, lowered, tier) == []
    assert steps(None, lowered, tier) == [
        ("give", "limit", "nlp", "low", "high,low"),
        ("give", "limit", "nlp", "low", "high"),
        ("give", "tier", "7", "low", "high"),
    ]


LOWERED = {"QOS": "low", "DefaultQOS": "low"}
WERE = {"nlp": {"QOS": "high,low", "DefaultQOS": "high"}}
BECAME = {("nlp", "QOS"): {"low"}, ("nlp", "DefaultQOS"): {"low"}}


def test_a_list_of_qos_that_somebody_set_since_stays() -> None:
    """With the default, which may be none of it; what the store does not know becomes what it was."""
    state = Live({"nlp": LOWERED | {"QOS": "low,urgent"}}, WERE)
    found = plan([], state, [], BELOW.__getitem__, BECAME)
    assert [(each.action, each.key, each.after) for each in found] == [
        ("forget", "QOS", "low,urgent"),
        ("forget", "DefaultQOS", "low"),
    ]
    assert "somebody set it to low,urgent since" in found[0].why
    assert [each.action for each in plan([LOWER], state, [], BELOW.__getitem__, BECAME)] == []
    assert [each.action for each in plan([], state, [], BELOW.__getitem__)] == ["give", "give"]


def test_another_tier_counts_for_who_is_kept_already() -> None:
    lowered = Live({"nlp": LOWERED}, WERE, (replace(JOB, qos="low"),))
    tier = Ours("tier", 7, 1000, "nlp", "high", "low")
    lowest = Wish("nlp", "lower-tier", "lowest")
    found = plan([lowest], lowered, [tier], BELOW.__getitem__, BECAME)
    assert [(each.action, each.kind, each.before, each.after) for each in found] == [
        ("take", "limit", "low", "lowest"),
        ("take", "limit", "low", "lowest"),
        ("give", "tier", "low", "high"),
    ]
    # As far as one can tell after an interruption, it is: its own QoS was another one.
    assert plan([lowest], lowered, [replace(tier, state="begun")], BELOW.__getitem__, BECAME) == found
    # What somebody else changed is theirs.
    theirs = Live({"nlp": LOWERED | {"QOS": "low,urgent"}}, WERE)
    assert plan([lowest], theirs, [], BELOW.__getitem__, BECAME) == ()


def test_a_change_of_policy_gives_back_what_the_new_one_does_not_take() -> None:
    assert steps(BLOCK, live("0", "20", HELD), OURS) == [("give", "hold", "7", "", "")]
    assert steps(Wish("nlp", "warn"), live("0", "20")) == [("give", "limit", "nlp", "0", "20")]


def test_undo_is_of_one_account() -> None:
    state = Live(
        {"nlp": {"GrpSubmitJobs": "0"}, "cv": {"GrpSubmitJobs": "0"}},
        {"nlp": {"GrpSubmitJobs": "9"}, "cv": {"GrpSubmitJobs": ""}},
        (HELD,),
    )
    theirs = Ours("hold", 8, 1, "cv")
    assert undo("nlp", state, [OURS, theirs], BELOW.__getitem__) == (
        Step("give", "limit", "nlp", "nlp", "GrpSubmitJobs", "0", "9", 0, "its budget allows it again"),
        Step("give", "hold", "nlp", "7", "", "", "", 1000),
    )
