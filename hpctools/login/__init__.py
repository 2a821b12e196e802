"""Login nodes: which one a session goes to, how many sessions somebody may have. Policy is pure."""
