"""What the service does, one file each; routers and commands call these."""
