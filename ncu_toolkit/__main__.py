"""`python -m ncu_toolkit`."""

from ncu_toolkit.cli import main

main()
