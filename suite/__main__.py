"""`python -m suite`: the same as the console script, for a checkout that is not installed."""

from suite.cli.main import main

main()
