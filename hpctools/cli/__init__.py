"""Command-line surface only: arguments in, exit codes and tables out."""
