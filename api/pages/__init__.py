"""Pages for people: rendered here, no scripts, nothing from elsewhere."""
