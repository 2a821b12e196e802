"""Tables whose rows stay as they were written: the database itself refuses to change or remove them."""

from __future__ import annotations

from alembic import op

_REFUSE = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$
"""


def allow_refusing() -> None:
    """Make what `refuse_changes` needs; once for a database."""
    if _is_postgresql():
        op.execute(_REFUSE)


def forget_refusing() -> None:
    """Take back what `allow_refusing` made, after the last table that needs it is gone."""
    if _is_postgresql():
        op.execute("DROP FUNCTION refuse_change()")


def refuse_changes(table: str) -> None:
    """From now on rows are only added to a table; `drop_table` takes this with it."""
    for statement in _triggers(table):
        op.execute(statement)


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _triggers(table: str) -> list[str]:
    if _is_postgresql():
        return [
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION refuse_change()",
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
        ]
    return [
        f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for change in ("UPDATE", "DELETE")
    ]
