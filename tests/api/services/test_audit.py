from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.exc import DBAPIError

from api.db.access_models import AuditEntry
from api.db.engine import reading, writing
from api.services import audit


def tell(engine: Engine, subject: str, at: int = 100) -> None:
    with writing(engine) as session:
        audit.record(session, "somebody", "budget.set", subject, None, {"amount": "1.00"}, at=at)


def broken(engine: Engine) -> audit.Broken | None:
    with reading(engine) as session:
        return audit.verify(session)


def force(engine: Engine, statement: str) -> None:
    """Change history as the database's owner can."""
    changes = ("update", "delete")
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            for change in changes:
                connection.exec_driver_sql(f"DROP TRIGGER audit_entry_no_{change}")
        else:
            connection.exec_driver_sql("ALTER TABLE audit_entry DISABLE TRIGGER USER")
        connection.exec_driver_sql(statement)


def test_entries_are_chained(engine: Engine) -> None:
    for name in ("nlp", "cv", "dl"):
        tell(engine, name)
    with reading(engine) as session:
        entries = session.scalars(select(AuditEntry).order_by(AuditEntry.id)).all()
        assert [entry.subject for entry in entries] == ["nlp", "cv", "dl"]
        assert [entry.previous for entry in entries] == [
            audit.GENESIS,
            entries[0].digest,
            entries[1].digest,
        ]
        assert audit.head(session) == entries[2].digest
    assert broken(engine) is None


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("UPDATE audit_entry SET after = '{\"amount\":\"9.00\"}' WHERE subject = 'cv'", "cv"),
        ("UPDATE audit_entry SET at = 99 WHERE subject = 'nlp'", "nlp"),
        ("UPDATE audit_entry SET principal = 'me' WHERE subject = 'dl'", "dl"),
        ("DELETE FROM audit_entry WHERE subject = 'cv'", "dl"),
        ("DELETE FROM audit_entry WHERE subject = 'nlp'", "cv"),
    ],
)
def test_what_the_databases_owner_changes_is_noticed(engine: Engine, statement: str, first: str) -> None:
    for name in ("nlp", "cv", "dl"):
        tell(engine, name)
    force(engine, statement)
    found = broken(engine)
    assert found is not None
    with reading(engine) as session:
        assert session.get_one(AuditEntry, found.id).subject == first


def test_a_change_that_fails_is_not_told(engine: Engine) -> None:
    def fail() -> None:
        with writing(engine) as session:
            audit.record(session, "somebody", "budget.set", "nlp", None, {}, at=1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with reading(engine) as session:
        assert audit.head(session) == audit.GENESIS


def test_several_at_once_make_one_chain(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(tell, engine, f"s{n}") for n in range(12)]:
            future.result(60)
    with reading(engine) as session:
        assert len(session.scalars(select(AuditEntry)).all()) == 12
    assert broken(engine) is None


def test_the_trail_cannot_be_changed(engine: Engine) -> None:
    tell(engine, "nlp")
    for statement in ("UPDATE audit_entry SET at = 0", "DELETE FROM audit_entry"):
        with engine.begin() as connection, pytest.raises(DBAPIError, match="audit_entry is append-only"):
            connection.exec_driver_sql(statement)
