"""A statement in the formats that people and their programs take: CSV, FOCUS and PDF."""
