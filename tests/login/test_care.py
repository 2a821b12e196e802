"""Care: from impatience to a penalty and back, and what people are told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.login.care import GIB, Limits, Reach, Standing, excess, limits, message, reminder, step
from hpctools.site.login_care import Care

CARE = Care.model_validate(
    {"patience": "00:10:00", "penalty": "00:30:00", "levels": (0.8, 0.5, 0.3), "forget_after": "01:00:00"}
)


def after(standing: Standing, used: float, minutes: int, start: float = 0.0) -> Standing:
    """How somebody stands who uses the same for some minutes, looked at every ten seconds."""
    for number in range(minutes * 6):
        standing = step(standing, used, 10.0, start + 10.0 * (number + 1), CARE)
    return standing


def test_the_part_is_of_processors_or_memory_whichever_is_more() -> None:
    assert excess(2.0, 0, CARE) == 0.5
    assert excess(2.0, 24 * GIB, CARE) == 1.5


def test_patience_ends_the_sooner_the_more_somebody_uses() -> None:
    """Patience is ten minutes: 1.5 times the part takes 6:40, four times 2:30, and more is not sooner."""
    assert after(Standing(), 1.5, 6).level == 0
    assert after(Standing(), 1.5, 7).level == 1
    assert (after(Standing(), 4.0, 2).level, after(Standing(), 4.0, 3).level) == (0, 1)
    assert after(Standing(), 100.0, 2).level == 0


def test_who_keeps_to_the_part_is_never_slowed_down() -> None:
    assert after(Standing(), 1.0, 24 * 60) == Standing()


def test_a_penalty_eases_by_itself_and_a_relapse_begins_a_level_further() -> None:
    first = step(Standing(impatience=0.99), 2.0, 10.0, 1000.0, CARE)
    assert first == Standing(0.0, 1, 2800.0, 1, 0.0)
    assert step(first, 9.0, 10.0, 2799.0, CARE) == first  # what is used under a limit makes it no worse
    free = step(first, 9.0, 10.0, 2800.0, CARE)
    assert (free.level, free.relapses, free.free_since) == (0, 1, 2800.0)
    again = step(Standing(0.99, 0, 0.0, 1, 2800.0), 2.0, 10.0, 3000.0, CARE)
    assert (again.level, again.until) == (2, 4800.0)
    eased = step(again, 0.0, 10.0, 4800.0, CARE)
    assert (eased.level, eased.until) == (1, 6600.0)
    assert step(eased, 0.0, 10.0, 6600.0, CARE).level == 0


def test_relapses_are_forgotten_with_time() -> None:
    standing = Standing(0.0, 0, 0.0, 2, 1000.0)
    assert step(standing, 0.0, 10.0, 4500.0, CARE).relapses == 2
    assert step(standing, 0.0, 10.0, 4600.0, CARE).relapses == 1
    assert step(standing, 0.0, 10.0, 1000.0 + 2 * 3600, CARE).is_clean


@settings(deadline=None)
@given(st.lists(st.floats(0, 50), max_size=100))
def test_everybody_is_free_again_who_stops(used: list[float]) -> None:
    """Whatever somebody did: all levels end in as many penalties, and memory of them fades."""
    standing, now = Standing(), 0.0
    for each in used:
        now += 60.0
        standing = step(standing, each, 60.0, now, CARE)
        assert 0 <= standing.impatience <= 1
        assert 0 <= standing.level <= len(CARE.levels)
    for _ in range(3 * 30 + 1):
        now += 60.0
        standing = step(standing, 0.0, 60.0, now, CARE)
    assert standing.level == 0
    assert limits(standing, CARE) == Limits()


def test_what_the_kernel_is_told() -> None:
    capped = CARE.model_copy(update={"most_cpus": 8.0, "most_memory_gib": 32.0})
    assert limits(Standing(), CARE) == Limits()
    assert limits(Standing(), capped) == Limits(8.0, None, 32 * GIB)
    assert limits(Standing(level=2), capped) == Limits(2.0, 8 * GIB, 32 * GIB)


def test_what_people_are_told() -> None:
    begun = Standing(0.0, 1, 1800.0, 1)
    used = (9.31, 3 * GIB, "python3 (process 77)")
    assert message(Standing(), Standing(0.5), 0.0, CARE, used) is None
    assert message(Standing(), begun, 0.0, CARE, used) == (
        "You have used 9.3 processors and 3.0 GiB of this login node, most of it by python3 (process 77). "
        "At length 4 processors and 16 GiB are one person's part, so that it stays quick for everybody. Your "
        "programs go on with 3.2 processors and 12.8 GiB; the limit eases by itself in 30 minutes. Long or "
        "large work belongs into a job: hp-submit --help."
    )
    assert message(Standing(0.0, 2, 0.0), begun, 0.0, CARE, used) == (
        "The limit on your programs on this login node is eased: 3.2 processors and 12.8 GiB for the next 30 "
        "minutes."
    )
    assert message(begun, Standing(relapses=1), 0.0, CARE, used) == (
        "This login node's limit on your programs is over. Thank you for leaving room for others."
    )


def test_nobody_is_told_that_a_limit_holds_what_it_does_not_reach() -> None:
    """A shell of Session Manager's, say, which systemd does not have in its owner's slice."""
    begun, used = Standing(0.0, 1, 1800.0, 1), (9.31, 3 * GIB, "python3 (process 77)")
    some, none = Reach("python3 (process 77)"), Reach("python3 (process 77)", is_none=True)
    but = ", but for those that the limit does not reach, such as python3 (process 77)"
    told = message(Standing(), begun, 0.0, CARE, used, reach=some)
    assert told is not None
    assert told.endswith(
        f" Your programs go on with 3.2 processors and 12.8 GiB{but}: please have these use less. The limit "
        "eases by itself in 30 minutes. Long or large work belongs into a job: hp-submit --help."
    )
    assert message(Standing(0.0, 2, 0.0), begun, 0.0, CARE, used, reach=some) == (
        "The limit on your programs on this login node is eased: 3.2 processors and 12.8 GiB for the next 30 "
        f"minutes{but}."
    )
    powerless = "This login node cannot slow down what you run now, such as python3 (process 77)"
    told = message(Standing(), begun, 0.0, CARE, used, reach=none)
    assert told is not None
    assert told.endswith(
        f" {powerless}: please have it use less. Long or large work belongs into a job: hp-submit --help."
    )
    assert message(Standing(0.0, 2, 0.0), begun, 0.0, CARE, used, reach=none) is None
    assert message(begun, Standing(relapses=1), 0.0, CARE, used, reach=none) is None
    assert f" for the next 30 minutes{but}: you had used" in reminder(begun, 0.0, CARE, used, reach=some)
    assert reminder(begun, 0.0, CARE, used, reach=none).startswith(f"{powerless}, and you had used 9.3")
