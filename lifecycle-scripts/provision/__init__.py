"""What the steps share; standard library only, since it runs before anything is installed."""
