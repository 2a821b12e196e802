"""The command line `hpctools-api`: arguments in, tables and exit codes out."""
