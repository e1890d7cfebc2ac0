"""What is wrong with a command line, in one line, as every other complaint is."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from cfcl.cli.terminal import complaints
from cfcl.errors import CfclError

UsageError: Any = typer.BadParameter.__base__
"""Of the click that typer brings, wherever this version keeps it."""


class Commands(TyperGroup):
    """The commands, without boxes of several lines around what is wrong with their options."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and exit with its code; as a part of another program, return."""
        if not options.get("standalone_mode", True):
            return super().main(*args, **options)
        try:
            sys.exit(super().main(*args, **{**options, "standalone_mode": False}))
        except UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # which has shown the help by now
                complaints.print(f"error: {self._told(error)}")
            sys.exit(2)

    def _told(self, error: Any) -> CfclError:
        """What is wrong, and where the right way is described."""
        words = [word for word in sys.argv[1:2] if word in self.commands]
        path = error.ctx.command_path if error.ctx else " ".join(["cfcl", *words])
        text = error.format_message().replace("Value error, ", "").rstrip(".")
        return CfclError(f"{text}: see `{path} --help`")
