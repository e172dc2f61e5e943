"""`python -m graphuq` is `graphuq`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it quietly, even while its libraries are being imported."""
    try:
        from graphuq.app.cli import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
