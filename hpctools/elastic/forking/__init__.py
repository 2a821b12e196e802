"""Workers that are forked, on their node, from a process that has imported what they need.

`server` is that process; `client` is its agent's side of it.
"""
