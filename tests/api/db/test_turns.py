from __future__ import annotations

from threading import Event, Thread

import pytest

from api.db.turns import Turns
from hpctools.errors import UnreachableError


def test_who_asks_first_is_served_first() -> None:
    turns, served, first_is_in, go = Turns(), [], Event(), Event()

    def work(number: int) -> None:
        with turns.one(30):
            if number == 0:
                first_is_in.set()
                go.wait(30)
            served.append(number)

    threads = [Thread(target=work, args=(number,)) for number in range(20)]
    threads[0].start()
    first_is_in.wait(30)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(turns._queue) <= number:
            assert thread.is_alive()
    go.set()
    for thread in threads:
        thread.join(30)
    assert served == list(range(20))


def test_who_waits_too_long_gives_up_and_holds_nobody_up() -> None:
    turns = Turns()
    told = pytest.raises(UnreachableError, match=r"others have been at work for 0\.05 s")
    with turns.one(1), told, turns.one(0.05):
        pass
    with turns.one(1):
        pass


def test_who_fails_gives_the_turn_back() -> None:
    turns = Turns()
    with pytest.raises(KeyError), turns.one(1):
        raise KeyError
    with turns.one(1):
        pass


def test_a_turn_is_free_when_nobody_has_it_or_waits_for_it() -> None:
    turns = Turns()
    assert turns.free()
    with turns.one(1):
        assert not turns.free()
        with pytest.raises(UnreachableError), turns.one(0.01):
            pass
        assert not turns.free()
    assert turns.free()
