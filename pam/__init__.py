"""Who may log in on a node: PAM stacks, the programs that they call, their installer."""
