"""Session Manager: its sessions counted together with those over SSH, and ended when there are too many."""
