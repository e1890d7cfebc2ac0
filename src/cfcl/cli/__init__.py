"""The command line: commands.py puts the commands together, the other files have them by subject."""

from cfcl.cli.commands import app, main

__all__ = ["app", "main"]
