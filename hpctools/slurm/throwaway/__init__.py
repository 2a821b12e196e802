"""What runs inside a preflight's namespaces: little, so that it starts soon (`hpctools.conf.preflight`)."""
