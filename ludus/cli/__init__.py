"""The command line."""

from ludus.cli.commands import main

__all__ = ["main"]
