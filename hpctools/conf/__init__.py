"""From a site to the text of its configuration files: pure."""
