"""The project's story, told on a real cluster; every claim is observed or said to be missing."""
