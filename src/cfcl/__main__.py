"""`python -m cfcl`."""

from cfcl.cli import main

main()
