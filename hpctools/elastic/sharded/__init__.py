"""Sharded models (FSDP2's `fully_shard`) in an elastic run: resharded in living processes at a resize."""
