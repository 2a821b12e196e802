"""Apply: one change of a live cluster, as a transaction."""
