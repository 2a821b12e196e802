"""`python -m api` and `hpctools-api`."""

from api.commands.main import main

if __name__ == "__main__":
    main()
