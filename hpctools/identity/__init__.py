"""The people's directory: what sssd is told of it, who is in its groups, and what has changed since."""
