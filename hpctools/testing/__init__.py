"""Fakes that implement our Protocols, builders, a clock."""
