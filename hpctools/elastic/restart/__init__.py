"""Restart mode: scripts written for torchrun, which save their own checkpoints, started anew at each size.

Nothing here needs torch, and `events`, the only part that is loaded into the user's processes, needs nothing
but Python's own library: the user's interpreter need not have hpctools.
"""
