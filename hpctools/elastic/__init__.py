"""Elastic training: the library a training script imports, the node agent and the run coordinator."""
