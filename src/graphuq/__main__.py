"""`python -m graphuq` is `graphuq`."""

from graphuq.app.cli import main

if __name__ == "__main__":
    main()
