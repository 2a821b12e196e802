"""Who may log in on a node: PAM stacks, the programs that they call, and their installer. Standard library only."""
