"""Submitting from a laptop: SSH on one side, one small command on the other, and every job exactly once."""
