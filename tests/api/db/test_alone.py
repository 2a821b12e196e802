from __future__ import annotations

from sqlalchemy import Engine

from api.db.alone import alone


def test_who_asks_right_after_gets_it(engine: Engine) -> None:
    """PostgreSQL notices a closed connection only some time after."""
    for _ in range(50):
        with alone(engine) as held:
            assert held
            with alone(engine) as second, alone(engine, "enforce") as other:
                assert (second, other) == (False, True)
