"""The agent of a login node: what it sees, says and does."""
