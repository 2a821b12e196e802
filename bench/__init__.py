"""Benchmarks: each a program that prints a table and, as its last line, one JSON object."""
