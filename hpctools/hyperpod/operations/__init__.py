"""Clusters on AWS, from nothing to running and back: create, update, status, delete.

No state is kept on this machine. What has been done is asked of AWS each time, so an operation that was
interrupted goes on when it is called again: it waits for what is under way, and leaves alone what is done.
"""
