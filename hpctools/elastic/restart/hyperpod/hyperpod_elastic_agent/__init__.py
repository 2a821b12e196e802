"""HyperPod's import path in restart mode: this folder's parent is put on PYTHONPATH by the agent."""
