"""The store: append-only tables in SQLite or PostgreSQL."""
