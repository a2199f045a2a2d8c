"""`python -m ncu_toolkit`, and the `ncu-toolkit` command."""

import sys


def run() -> None:
    """Run the command line. Ctrl-C is one line and exit code 130 from the first import on, not only
    once a command runs."""
    try:
        from ncu_toolkit.cli import main

        main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("error: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    run()
