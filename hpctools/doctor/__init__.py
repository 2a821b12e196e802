"""What is wrong with a live installation, why it matters and what to do: pure checks over one snapshot.

`read.read` takes the snapshot, `registry.diagnose` puts it before the checks.
"""
